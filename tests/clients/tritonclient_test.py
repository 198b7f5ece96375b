"""tritonclient's HTTP client: what it asks about the server and its models, and inference in every
form it has."""
import json
import tempfile
import unittest

import ml_dtypes
import numpy
import served
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException


def pixels(pictures, name="input", datatype="UINT8", binary=True):
    given = triton.InferInput(name, list(pictures.shape), datatype)
    return given.set_data_from_numpy(pictures, binary_data=binary)


def classes(result, name="scores"):
    return result.as_numpy(name).argmax(axis=1)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.served = served.shared()
        cls.client = triton.InferenceServerClient(cls.served.address, concurrency=8)
        cls.addClassCleanup(cls.client.close)

    def fails(self, pattern, call, *arguments, **named):
        with self.assertRaisesRegex(InferenceServerException, pattern):
            call(*arguments, **named)


class Server(Case):
    def test_live_and_ready(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())

    def test_metadata(self):
        about = self.client.get_server_metadata()
        self.assertEqual(about["name"], "xnord")
        self.assertRegex(about["version"], r"^\d+\.\d+\.\d+")
        expected = {"binary_tensor_data", "classification", "model_configuration", "statistics"}
        expected |= {"model_repository", "system_shared_memory"}
        self.assertLessEqual(expected, set(about["extensions"]))


class Models(Case):
    def test_ready(self):
        self.assertTrue(self.client.is_model_ready("digits"))
        self.assertTrue(self.client.is_model_ready("digits", "1"))
        self.assertTrue(self.client.is_model_ready("edge"))
        self.assertFalse(self.client.is_model_ready("digits", "2"))
        self.assertFalse(self.client.is_model_ready("broken"))
        self.assertFalse(self.client.is_model_ready("nothing"))

    def test_metadata(self):
        about = self.client.get_model_metadata("digits")
        self.assertEqual(about["name"], "digits")
        self.assertEqual(about["versions"], ["1"])
        self.assertIsInstance(about["platform"], str)
        tensor = {"name": "input", "datatype": "UINT8", "shape": [-1, 8, 8, 1]}
        self.assertEqual([dict(tensor, **given) for given in about["inputs"]], about["inputs"])
        shapes = {output["name"]: output["shape"] for output in about["outputs"]}
        self.assertEqual(shapes, {"scores": [-1, 10], "logits": [-1, 10]})
        self.assertEqual({output["datatype"] for output in about["outputs"]}, {"FP32"})

    def test_metadata_of_a_version(self):
        self.assertEqual(self.client.get_model_metadata("digits", "1")["name"], "digits")
        self.fails("7", self.client.get_model_metadata, "digits", "7")

    def test_highest_version_is_served(self):
        self.assertIn("3", self.client.get_model_metadata("versions")["versions"])
        result = self.client.infer("versions", [pixels(served.PICTURES[:1])])
        self.assertEqual(result.get_response()["model_version"], "3")

    def test_config(self):
        config = self.client.get_model_config("digits")
        self.assertEqual(config["name"], "digits")
        self.assertEqual(config["max_batch_size"], 1024)
        (given,) = config["input"]
        self.assertEqual(given["name"], "input")
        self.assertEqual(given["data_type"], "TYPE_UINT8")
        self.assertEqual([int(size) for size in given["dims"]], [8, 8, 1])
        dims = {output["name"]: [int(n) for n in output["dims"]] for output in config["output"]}
        self.assertEqual(dims, {"scores": [10], "logits": [10]})

    def test_unknown_model(self):
        for call in (self.client.get_model_metadata, self.client.get_model_config):
            self.fails("nothing", call, "nothing")
        self.fails("nothing", self.client.get_inference_statistics, "nothing")

    def test_statistics_count(self):
        def counts():
            (stats,) = self.client.get_inference_statistics("small")["model_stats"]
            self.assertEqual((stats["name"], stats["version"]), ("small", "1"))
            parts = stats["inference_stats"]
            computed = [parts[f"compute_{part}"] for part in ("input", "infer", "output")]
            self.assertEqual(len({int(part["count"]) for part in computed}), 1)
            times = sum(int(part["ns"]) for part in computed) + int(parts["queue"]["ns"])
            self.assertLessEqual(times, int(parts["success"]["ns"]))
            return stats, parts

        before, parts_before = counts()
        for _ in range(5):
            self.client.infer("small", [pixels(served.PICTURES[:3])])
        self.fails("", self.client.infer, "small", [pixels(served.PICTURES[:5])])
        after, parts_after = counts()
        self.assertEqual(int(after["inference_count"]) - int(before["inference_count"]), 15)
        self.assertEqual(int(after["execution_count"]) - int(before["execution_count"]), 5)
        for part in ("success", "queue", "compute_infer"):
            self.assertEqual(int(parts_after[part]["count"]) - int(parts_before[part]["count"]), 5)
        self.assertGreater(int(parts_after["success"]["ns"]), int(parts_before["success"]["ns"]))

    def test_statistics_of_all(self):
        names = {stats["name"] for stats in self.client.get_inference_statistics()["model_stats"]}
        self.assertLessEqual({"digits", "digits-fp32", "digits-fp16", "small"}, names)


class Infer(Case):
    def test_every_held_out_digit(self):
        result = self.client.infer("digits", [pixels(served.PICTURES)])
        numpy.testing.assert_array_equal(classes(result), served.RECOGNISED)
        numpy.testing.assert_array_equal(classes(result, "logits"), served.RECOGNISED)
        self.assertGreaterEqual((classes(result) == served.SHOWN).mean(), 0.97)
        numpy.testing.assert_allclose(result.as_numpy("scores").sum(axis=1), 1, rtol=1e-5)

    def test_forms_agree(self):
        pictures = served.PICTURES[:20]
        wanted = self.client.infer("digits", [pixels(pictures)])
        for given in (True, False):
            for taken in (True, False):
                outputs = [
                    triton.InferRequestedOutput(name, binary_data=taken)
                    for name in ("logits", "scores")
                ]
                got = self.client.infer("digits", [pixels(pictures, binary=given)], outputs=outputs)
                for name in ("logits", "scores"):
                    self.assertEqual(got.as_numpy(name).dtype, numpy.float32)
                    numpy.testing.assert_array_equal(got.as_numpy(name), wanted.as_numpy(name))

    def test_one_output_binary_and_one_in_json(self):
        outputs = [
            triton.InferRequestedOutput("scores", binary_data=False),
            triton.InferRequestedOutput("logits", binary_data=True),
        ]
        got = self.client.infer("digits", [pixels(served.PICTURES[:3])], outputs=outputs)
        numpy.testing.assert_array_equal(classes(got), classes(got, "logits"))
        self.assertIn("data", got.get_output("scores"))
        self.assertNotIn("data", got.get_output("logits"))

    def test_chosen_output(self):
        outputs = [triton.InferRequestedOutput("logits")]
        got = self.client.infer("digits", [pixels(served.PICTURES[:2])], outputs=outputs)
        self.assertEqual([output["name"] for output in got.get_response()["outputs"]], ["logits"])
        self.assertIsNone(got.as_numpy("scores"))

    def test_datatypes_of_networks(self):
        wanted = self.client.infer("digits", [pixels(served.PICTURES[:50])]).as_numpy("logits")
        for model, datatype, kind in (("digits-fp32", "FP32", "f4"), ("digits-fp16", "FP16", "f2")):
            for binary in (True, False):
                with self.subTest(model=model, binary=binary):
                    given = pixels(served.PICTURES[:50].astype(kind), "input", datatype, binary)
                    got = self.client.infer(model, [given]).as_numpy("logits")
                    # Of UINT8 the stem sums integers, and scales the sum.
                    most = 1e-5 * numpy.abs(wanted).max()
                    numpy.testing.assert_allclose(got, wanted, rtol=1e-5, atol=most)

    def test_batches(self):
        for count in (1, 2, 3, 7, 8, 33, 300):
            got = self.client.infer("digits", [pixels(served.PICTURES[:count])])
            self.assertEqual(got.as_numpy("scores").shape, (count, 10))
            numpy.testing.assert_array_equal(classes(got), served.RECOGNISED[:count])

    def test_id_comes_back(self):
        got = self.client.infer("digits", [pixels(served.PICTURES[:1])], request_id="question 7")
        self.assertEqual(got.get_response()["id"], "question 7")
        got = self.client.infer("digits", [pixels(served.PICTURES[:1])])
        self.assertNotIn("id", got.get_response())

    def test_answer_says_what_answered(self):
        got = self.client.infer("digits", [pixels(served.PICTURES[:1])], model_version="1")
        response = got.get_response()
        self.assertEqual((response["model_name"], response["model_version"]), ("digits", "1"))

    def test_parameters_are_accepted(self):
        given = [pixels(served.PICTURES[:1])]
        got = self.client.infer(
            "digits", given, priority=1, timeout=20_000_000, parameters={"colour": "green", "n": 3}
        )
        self.assertEqual(classes(got)[0], served.RECOGNISED[0])

    def test_async(self):
        asked = [
            self.client.async_infer("digits", [pixels(served.PICTURES[i : i + 1])])
            for i in range(64)
        ]
        got = [classes(call.get_result())[0] for call in asked]
        numpy.testing.assert_array_equal(got, served.RECOGNISED[:64])

    def test_compression(self):
        algorithms = (None, "gzip", "deflate")
        for asked in algorithms:
            for answered in algorithms:
                with self.subTest(request=asked, response=answered):
                    got = self.client.infer(
                        "digits",
                        [pixels(served.PICTURES[:200])],
                        request_compression_algorithm=asked,
                        response_compression_algorithm=answered,
                    )
                    numpy.testing.assert_array_equal(classes(got), served.RECOGNISED[:200])

    def test_compressed_json(self):
        got = self.client.infer(
            "digits",
            [pixels(served.PICTURES[:50], binary=False)],
            outputs=[triton.InferRequestedOutput("scores", binary_data=False)],
            request_compression_algorithm="gzip",
            response_compression_algorithm="gzip",
        )
        numpy.testing.assert_array_equal(classes(got), served.RECOGNISED[:50])

    def test_static_request_and_answer(self):
        body, header = triton.InferenceServerClient.generate_request_body(
            [pixels(served.PICTURES[:4])]
        )
        got = served.request(
            f"{self.served.url}/v2/models/digits/infer",
            bytes(body),
            Content_Type="application/octet-stream",
            Inference_Header_Content_Length=str(header),
        )
        self.assertEqual(got.status, 200)
        length = int(got.headers["Inference-Header-Content-Length"])
        result = triton.InferenceServerClient.parse_response_body(got.body, header_length=length)
        numpy.testing.assert_array_equal(classes(result), served.RECOGNISED[:4])


class Classification(Case):
    def best(self, count, binary, pictures=12):
        outputs = [triton.InferRequestedOutput("scores", binary_data=binary, class_count=count)]
        given = pixels(served.PICTURES[:pictures])
        return self.client.infer("digits", [given], outputs=outputs).as_numpy("scores")

    def test_best_classes(self):
        scores = self.client.infer("digits", [pixels(served.PICTURES[:12])]).as_numpy("scores")
        for binary in (True, False):
            got = self.best(3, binary)
            self.assertEqual(got.shape, (12, 3))
            for row, values in zip(got, scores):
                order = numpy.argsort(-values, kind="stable")[:3]
                for entry, index in zip(row, order):
                    text = entry.decode() if isinstance(entry, bytes) else entry
                    value, number, label = text.split(":")
                    self.assertEqual(value, f"{values[index]:f}")
                    self.assertEqual((int(number), label), (index, str(index)))

    def test_more_than_there_are(self):
        self.assertEqual(self.best(100, True).shape, (12, 10))


class RegisteredWeights(Case):
    """PUT /weights/edge answers as the model "edge", with the parameters of /conv."""

    IMAGE = numpy.random.default_rng(1).integers(-3, 4, (2, 3, 6, 7))

    def check(self, image, datatype, wanted, binary=True):
        given = pixels(image, "input", datatype, binary)
        got = self.client.infer("edge", [given], parameters={"scaling": "alpha"})
        numpy.testing.assert_allclose(got.as_numpy("output"), wanted, rtol=1e-6)

    def test_datatypes(self):
        wanted = served.edge_answer(self.IMAGE)
        kinds = {"FP32": "f4", "FP16": "f2", "INT8": "i1", "BF16": ml_dtypes.bfloat16}
        for datatype, kind in kinds.items():
            with self.subTest(datatype=datatype):
                self.check(self.IMAGE.astype(kind), datatype, wanted)

    def test_datatypes_in_json(self):
        wanted = served.edge_answer(self.IMAGE)
        for datatype, kind in {"FP32": "f4", "FP16": "f2", "INT8": "i1"}.items():
            with self.subTest(datatype=datatype):
                self.check(self.IMAGE.astype(kind), datatype, wanted, binary=False)

    def test_bool_is_a_sign(self):
        wanted = served.edge_answer(self.IMAGE)
        for binary in (True, False):
            self.check(self.IMAGE >= 0, "BOOL", wanted, binary)

    def test_metadata(self):
        about = self.client.get_model_metadata("edge")
        self.assertEqual([given["name"] for given in about["inputs"]], ["input"])
        self.assertEqual([output["name"] for output in about["outputs"]], ["output"])


class Errors(Case):
    def infer_fails(self, pattern, given, model="digits", **named):
        self.fails(pattern, self.client.infer, model, [given], **named)

    def test_unknown_model(self):
        self.infer_fails("nothing", pixels(served.PICTURES[:1]), "nothing")

    def test_unknown_version(self):
        self.infer_fails("9", pixels(served.PICTURES[:1]), model_version="9")

    def test_broken_model(self):
        self.infer_fails("broken", pixels(served.PICTURES[:1]), "broken")

    def test_wrong_name(self):
        self.infer_fails("image|input", pixels(served.PICTURES[:1], "image"))

    def test_wrong_shape(self):
        for shape in ((1, 8, 8), (1, 1, 8, 8), (1, 8, 8, 2), (64,)):
            image = numpy.zeros(shape, numpy.uint8)
            self.infer_fails("shape", pixels(image))

    def test_no_image(self):
        self.infer_fails("", pixels(numpy.zeros((0, 8, 8, 1), numpy.uint8)))

    def test_wrong_datatype(self):
        for datatype, kind in (("FP32", "f4"), ("INT64", "i8"), ("BOOL", "?")):
            self.infer_fails("UINT8", pixels(served.PICTURES[:1].astype(kind), "input", datatype))

    def test_bytes(self):
        text = numpy.array([b"seven"] * 64, dtype=numpy.object_).reshape(1, 8, 8, 1)
        self.infer_fails("BYTES|datatype", pixels(text, "input", "BYTES"))

    def test_unknown_output(self):
        outputs = [triton.InferRequestedOutput("colour")]
        self.infer_fails("colour", pixels(served.PICTURES[:1]), outputs=outputs)

    def test_output_twice(self):
        outputs = [triton.InferRequestedOutput("scores")] * 2
        self.infer_fails("scores", pixels(served.PICTURES[:1]), outputs=outputs)

    def test_input_twice(self):
        given = pixels(served.PICTURES[:1])
        self.fails("input", self.client.infer, "digits", [given, given])

    def test_no_input(self):
        self.fails("inputs|input", self.client.infer, "digits", [])

    def test_too_many_images(self):
        self.infer_fails("4", pixels(served.PICTURES[:5]), "small")

    def test_unknown_region(self):
        given = triton.InferInput("input", [1, 8, 8, 1], "UINT8")
        given.set_shared_memory("nowhere", 64)
        self.infer_fails("nowhere", given)

    def test_server_goes_on(self):
        got = self.client.infer("digits", [pixels(served.PICTURES[:1])])
        self.assertEqual(classes(got)[0], served.RECOGNISED[0])


class Raw(Case):
    """What no client sends by itself, but what the protocol says."""

    def post(self, body, path="models/digits/infer", **headers):
        return served.request(f"{self.served.url}/v2/{path}", body, "POST", **headers)

    def error_of(self, got, status):
        self.assertEqual(got.status, status, got.body)
        self.assertIsInstance(got.json()["error"], str)
        return got.json()["error"]

    def test_raw_body(self):
        got = self.post(served.PICTURES[3].tobytes(), Inference_Header_Content_Length="0")
        self.assertEqual(got.status, 200, got.body)
        length = int(got.headers["Inference-Header-Content-Length"])
        outputs = json.loads(got.body[:length])["outputs"]
        self.assertEqual([output["shape"] for output in outputs], [[1, 10]] * 2)
        values = numpy.frombuffer(got.body[length:], "<f4").reshape(2, 10)
        self.assertEqual(values[0].argmax(), served.RECOGNISED[3])

    def test_json_without_content_type(self):
        data = served.PICTURES[:2].ravel().tolist()
        given = {"name": "input", "shape": [2, 8, 8, 1], "datatype": "UINT8", "data": data}
        for kind in ("application/json", "application/x-www-form-urlencoded"):
            body = json.dumps({"inputs": [given]}).encode()
            got = self.post(body, Content_Type=kind)
            self.assertEqual(got.status, 200, got.body)
            outputs = {output["name"]: output["data"] for output in got.json()["outputs"]}
            scores = numpy.array(outputs["scores"]).reshape(2, 10)
            numpy.testing.assert_array_equal(scores.argmax(axis=1), served.RECOGNISED[:2])

    def test_nested_data(self):
        given = {"name": "input", "shape": [2, 8, 8, 1], "datatype": "UINT8"}
        given["data"] = served.PICTURES[:2].tolist()
        self.assertEqual(self.post(json.dumps({"inputs": [given]}).encode()).status, 200)

    def test_surplus_bytes(self):
        body, header = triton.InferenceServerClient.generate_request_body(
            [pixels(served.PICTURES[:1])]
        )
        got = self.post(bytes(body) + b"x", Inference_Header_Content_Length=str(header))
        self.error_of(got, 400)

    def test_reserved_parameter(self):
        data = served.PICTURES[0].ravel().tolist()
        given = {"name": "input", "shape": [1, 8, 8, 1], "datatype": "UINT8", "data": data}
        body = {"inputs": [given], "parameters": {"triton_enable_empty_final_response": True}}
        self.assertIn("triton_", self.error_of(self.post(json.dumps(body).encode()), 400))

    def test_errors_are_strings(self):
        self.error_of(self.post(b"{"), 400)
        self.error_of(self.post(b"{}", "models/nothing/infer"), 404)
        self.error_of(self.post(b"{}", "repository/models/nothing/load"), 404)
        self.error_of(self.post(b"{}", "cudasharedmemory/region/r/register"), 501)
        self.error_of(self.post(b"{}", "models/digits/ready"), 405)
        self.error_of(self.post(b"{}", "models/digits/nothing"), 404)
        self.error_of(self.post(b"x" * 64, Inference_Header_Content_Length="-1"), 400)
        self.error_of(self.post(b"x" * 64, Inference_Header_Content_Length="65"), 400)
        self.error_of(self.post(b"x" * 63, Inference_Header_Content_Length="0"), 400)
        self.error_of(self.post(b"x", Content_Encoding="zstd"), 415)
        self.error_of(self.post(b"no gzip", Content_Encoding="gzip"), 400)


class Guarded(unittest.TestCase):
    """What the daemon refuses before a request reaches a model comes as the client wants it, too."""

    def setUp(self):
        keys = tempfile.NamedTemporaryFile("w", suffix=".keys")
        self.addCleanup(keys.close)
        keys.write("open-sesame-0123456789\n")
        keys.flush()
        flags = ["--api-keys-file", keys.name, "--max-body-bytes", "65536"]
        daemon = served.Daemon("--model", f"digits={served.DIGITS}", *flags)
        self.addCleanup(daemon.stop)
        self.client = triton.InferenceServerClient(daemon.address)
        self.addCleanup(self.client.close)
        self.key = {"Authorization": "Bearer open-sesame-0123456789"}

    def infer(self, count, headers=None, **named):
        given = [pixels(numpy.resize(served.PICTURES, (count, 8, 8, 1)))]
        return self.client.infer("digits", given, headers=headers, **named)

    def test_keys(self):
        self.assertEqual(classes(self.infer(1, self.key))[0], served.RECOGNISED[0])
        for headers in (None, {"Authorization": "Bearer open-sesame-0123456780"}):
            with self.assertRaises(InferenceServerException) as caught:
                self.infer(1, headers)
            self.assertEqual(caught.exception.status(), "401")

    def test_body_too_large(self):
        with self.assertRaisesRegex(InferenceServerException, "max-body-bytes"):
            self.infer(1100, self.key)

    def test_body_too_large_when_decompressed(self):
        with self.assertRaisesRegex(InferenceServerException, "max-body-bytes"):
            self.infer(1100, self.key, request_compression_algorithm="gzip")
