"""What openapi.yaml cannot say about a request that is to be accepted, for schemathesis.

OpenAPI describes parameters, headers and bodies each by themselves. Where they must fit together,
PROTOCOL.md has the rule and a request that breaks it is 400. Requests that schemathesis makes to be
accepted are put right here, and nothing else of them is touched; those that are made to be refused
go out as they are.

- Query parameters belong to the safetensors form, Inference-Header-Content-Length to OIP binary.
- A tensor has as many values as its shape says, of its datatype; its name is its member's.
- A binary body is a file in one of the two formats, not any bytes.
- Integers are written without a decimal point, which JSON Schema cannot ask for.
- INT32 output needs scaling none and mode xnor (in the query; of JSON the schema says it).
- weights are given once; timeout_ms has an upper limit that the server's settings give.
- A body is plain, and so its coding is identity.
- A body of the model repository's routes holds no NUL, which its parameters otherwise may.
"""

import json
import math
import struct

import schemathesis

MOST_TIMEOUT_MS = 300000  # --max-timeout-ms
TENSORS = ("input", "weights", "scale", "bias")
LENGTH = "Inference-Header-Content-Length"
# safetensors' name and the bytes of a value
DATATYPES = {"FP32": ("F32", 4), "FP16": ("F16", 2), "BF16": ("BF16", 2),
             "INT8": ("I8", 1), "UINT8": ("U8", 1), "BOOL": ("BOOL", 1)}


def integers(value):
    """1.0 as 1, anywhere but in a tensor's data."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [integers(v) for v in value]
    if isinstance(value, dict):
        return {k: v if k == "data" else integers(v) for k, v in value.items()}
    return value


def put_tensor_right(tensor, name):
    tensor["shape"] = [min(size, 5) for size in tensor["shape"]]
    count = math.prod(tensor["shape"])
    tensor["data"] = [(-1) ** i if tensor["datatype"] not in ("BOOL", "UINT8") else i % 2
                      for i in range(count)]
    if "name" in tensor:
        tensor["name"] = name


def put_json_right(body):
    body = integers(body)
    for name in TENSORS:
        if isinstance(body.get(name), dict):
            put_tensor_right(body[name], name)
    if "timeout_ms" in body:
        body["timeout_ms"] = min(body["timeout_ms"], MOST_TIMEOUT_MS)
    return body


def example(case, with_weights):
    tensors = {"weights": {"shape": [2, 1, 1, 1], "datatype": "INT8", "data": [1, -1]},
               "scale": {"shape": [2], "datatype": "FP32", "data": [1, 2]}}
    if case.path == "/conv":
        tensors["input"] = {"shape": [1, 1, 3, 3], "datatype": "INT8", "data": [1] * 9}
        del tensors["scale"]
    if not with_weights:
        del tensors["weights"]
    return tensors


def packed(tensor):
    codes = {"INT8": "b", "FP32": "f"}
    return struct.pack("<%d%s" % (len(tensor["data"]), codes[tensor["datatype"]]), *tensor["data"])


def oip_body(case):
    tensors = example(case, True)
    values = b"".join(packed(t) for t in tensors.values())
    header = {name: {"shape": t["shape"], "datatype": t["datatype"],
                     "parameters": {"binary_data_size": len(packed(t))}}
              for name, t in tensors.items()}
    text = json.dumps(header).encode()
    return text + values, len(text)


def safetensors_body(case, with_weights):
    tensors, header, values = example(case, with_weights), {}, b""
    for name, t in tensors.items():
        data = packed(t)
        header[name] = {"dtype": DATATYPES[t["datatype"]][0], "shape": t["shape"],
                        "data_offsets": [len(values), len(values) + len(data)]}
        values += data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + values


def drop_header(case):
    for key in [k for k in case.headers or {} if k.lower() == LENGTH.lower()]:
        del case.headers[key]


def put_coding_right(case):
    for key in [k for k in case.headers or {} if k.lower() == "content-encoding"]:
        case.headers[key] = "identity"


def put_repository_right(body):
    if body.get("parameters"):
        body["parameters"] = {}
    return integers(body)


def is_to_be_accepted(case):
    return case.meta is not None and case.meta.generation.mode.is_positive


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.method not in ("POST", "PUT") or not is_to_be_accepted(case):
        return
    put_coding_right(case)
    if case.path.startswith("/v2/repository/"):
        if isinstance(case.body, dict):
            case.body = put_repository_right(case.body)
        return
    if case.path not in ("/conv", "/weights/{name}") or not case.media_type:
        return
    drop_header(case)
    query = case.query or {}
    if case.media_type == "application/vnd.safetensors":
        case.body = safetensors_body(case, "weights" not in query)
        if query.get("output_datatype") == "INT32":
            query.update(scaling="none", mode="xnor")
        if "timeout_ms" in query:
            query["timeout_ms"] = min(int(query["timeout_ms"]), MOST_TIMEOUT_MS)
        return
    query.clear()
    if case.media_type == "application/json":
        if isinstance(case.body, dict):
            case.body = put_json_right(case.body)
    elif case.media_type == "application/octet-stream":
        case.body, length = oip_body(case)
        case.headers[LENGTH] = str(length)
