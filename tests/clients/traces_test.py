"""Traces: a client with OpenTelemetry's SDK calls the daemon, which sends its spans to a collector
that takes only what the published schema of OTLP has."""
import base64
import http.server
import json
import threading
import unittest

import numpy
import served
import tritonclient.http as triton
from google.protobuf import json_format
from opentelemetry import propagate
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON

STAGES = {"receive", "decode", "queue", "upload", "compute", "download", "encode"}


def parse(text):
    """Strictly: unknown fields fail, and so does what protobuf's JSON would write otherwise, but
    for ids, which OTLP has as hexadecimal digits."""
    sent = json.loads(text)
    for group in sent["resourceSpans"]:
        for scope in group["scopeSpans"]:
            for span in scope["spans"]:
                for name in {"traceId", "spanId", "parentSpanId"} & span.keys():
                    assert span[name] == span[name].lower(), span[name]
                    span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    message = ExportTraceServiceRequest()
    json_format.ParseDict(sent, message)
    written = json_format.MessageToDict(message, use_integers_for_enums=True)
    assert written == sent, (written, sent)
    return message


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        right = (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/json")
        try:
            assert right, (self.path, self.headers["Content-Type"])
            self.server.messages.append(parse(body))
            status = 200
        except (AssertionError, json_format.ParseError, KeyError, ValueError) as error:
            self.server.faults.append(f"{error!r}: {body[:2000]}")
            status = 400
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


class Collected:
    """A collector on a free port of loopback."""

    def __init__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
        self.server.messages, self.server.faults = [], []
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def spans(self):
        assert not self.server.faults, self.server.faults[0]
        return [
            span
            for message in self.server.messages
            for group in message.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def values(attributes):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in attributes}


class Traces(unittest.TestCase):
    def setUp(self):
        self.collected = Collected()
        self.addCleanup(self.collected.stop)

    def serve(self, *flags):
        self.daemon = served.Served("--otlp-endpoint", self.collected.url, *flags)
        return self.daemon

    def ended(self):
        """All spans, once the daemon is gone: it sends what it still has."""
        self.daemon.stop()
        return self.collected.spans()

    def infer(self, daemon, sampler):
        """By tritonclient, in a span of the client's."""
        tracer = TracerProvider(sampler=sampler).get_tracer("client")
        client = triton.InferenceServerClient(daemon.address)
        headers = {}
        given = triton.InferInput("input", [3, 8, 8, 1], "UINT8")
        given.set_data_from_numpy(served.PICTURES[:3])
        with tracer.start_as_current_span("asks") as span:
            propagate.inject(headers)
            client.infer("digits", [given], headers=headers)
        client.close()
        return span.get_span_context()

    def test_a_trace_goes_on(self):
        daemon = self.serve("--otlp-sample", "0", "--inline-us", "0")
        asked = self.infer(daemon, ALWAYS_ON)
        spans = self.ended()
        server = next(span for span in spans if span.kind == Span.SPAN_KIND_SERVER)
        stages = {span.name: span for span in spans if span is not server}
        self.assertEqual(server.name, "POST /v2/models/{model}/infer")
        self.assertEqual(server.parent_span_id, asked.span_id.to_bytes(8, "big"))
        self.assertEqual({span.trace_id for span in spans}, {asked.trace_id.to_bytes(16, "big")})
        self.assertEqual(len({span.span_id for span in spans}), len(spans))
        self.assertLessEqual({"decode", "queue", "compute", "encode"}, stages.keys())
        self.assertLessEqual(stages.keys(), STAGES)
        for stage in stages.values():
            self.assertEqual(stage.parent_span_id, server.span_id)
            self.assertLessEqual(server.start_time_unix_nano, stage.start_time_unix_nano)
            self.assertLess(stage.start_time_unix_nano, stage.end_time_unix_nano)
            self.assertLessEqual(stage.end_time_unix_nano, server.end_time_unix_nano)
        told = values(server.attributes)
        port = int(daemon.address.rsplit(":", 1)[1])
        expected = {
            "http.request.method": "POST",
            "url.scheme": "http",
            "url.path": "/v2/models/digits/infer",
            "http.route": "/v2/models/{model}/infer",
            "http.response.status_code": 200,
            "server.address": "127.0.0.1",
            "server.port": port,
            "client.address": "127.0.0.1",
            "xnord.request.id": f"{asked.trace_id:032x}",
        }
        self.assertEqual(told, told | expected)
        batch = values(stages["compute"].attributes)
        self.assertEqual((batch["xnord.device"], batch["xnord.batch.images"]), ("cpu", 3))
        resource = values(self.collected.server.messages[0].resource_spans[0].resource.attributes)
        self.assertEqual(resource["service.name"], "xnord")

    def test_a_trace_that_is_not_sampled(self):
        self.infer(self.serve(), ALWAYS_OFF)
        spans = self.ended()
        self.assertEqual([s for s in spans if s.name.endswith("/infer")], [])

    def test_traces_that_begin_here(self):
        daemon = self.serve("--otlp-sample", "0.25")
        count = 400
        for i in range(count):
            got = served.request(f"{daemon.url}/nowhere/{i}%ff%22", Host="localhost:8080")
            self.assertEqual(got.status, 404)
        spans = [s for s in self.ended() if "/nowhere" in values(s.attributes)["url.path"]]
        self.assertTrue(0.25 * count / 2 < len(spans) < 0.25 * count * 2, len(spans))
        for span in spans:
            self.assertEqual((span.name, span.parent_span_id), ("GET", b""))
            told = values(span.attributes)
            self.assertRegex(told["url.path"], r'^/nowhere/\d+%FF"$')
            self.assertEqual((told["server.address"], told["server.port"]), ("localhost", 8080))
            self.assertEqual(told["xnord.request.id"], span.trace_id.hex())


if __name__ == "__main__":
    unittest.main()
