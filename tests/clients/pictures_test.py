"""Pictures of every kind, as tritonclient, KServe's client and curl send them, to a network whose
output is its input: what comes back is what Pillow makes of the same files. Labels for people."""
import base64
import subprocess
import sys
import tempfile
import unittest

import numpy
import served
import tritonclient.http as triton
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(served.ROOT / "tests" / "pictures"))
import make  # noqa: E402

FILES = make.pictures(317, 211)
SIDE = served.PIXELS_SIDE
RULE = (served.PIXELS_RESIZE, SIDE, SIDE, 3, "bilinear")


def batches(size=8):
    names = list(FILES)
    return [names[i : i + size] for i in range(0, len(names), size)]


class Case(unittest.TestCase):
    def check(self, names, output):
        """At most one level, in at most 1% of values."""
        self.assertEqual(output.shape, (len(names), 3, SIDE, SIDE))
        for name, values in zip(names, output):
            expected = make.expected(FILES[name], *RULE).transpose(2, 0, 1).astype(int)
            off = numpy.abs(values.astype(int) - expected)
            self.assertLessEqual(off.max(), 1, name)
            self.assertLessEqual((off != 0).mean(), 0.01, name)


class Triton(Case):
    @classmethod
    def setUpClass(cls):
        cls.client = triton.InferenceServerClient(served.shared().address)
        cls.addClassCleanup(cls.client.close)

    def infer(self, elements, shape, binary):
        given = triton.InferInput("input", shape, "BYTES")
        given.set_data_from_numpy(numpy.array(elements, object).reshape(shape), binary_data=binary)
        return self.client.infer("pixels", [given]).as_numpy("same")

    def test_binary(self):
        for names in batches():
            files = [FILES[name] for name in names]
            self.check(names, self.infer(files, [len(names)], True))

    def test_binary_of_two_dimensions(self):
        names = batches()[1]
        self.check(names, self.infer([FILES[name] for name in names], [len(names), 1], True))

    def test_json(self):
        for names in batches():
            texts = [base64.b64encode(FILES[name]).decode() for name in names]
            self.check(names, self.infer(texts, [len(names)], False))

    def test_one_that_is_broken(self):
        files = [FILES["rgb.png"], FILES["grey.jpg"][:900]]
        with self.assertRaisesRegex(InferenceServerException, r"inputs\[0\].data\[1\] .*cut short"):
            self.infer(files, [2], True)


class Kserve(Case, unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=30))
        self.addAsyncCleanup(self.client.close)

    async def infer(self, elements, binary):
        given = InferInput("input", [len(elements)], "BYTES")
        given.set_data_from_numpy(numpy.array(elements, object), binary_data=binary)
        asked = InferRequest(model_name="pixels", infer_inputs=[given])
        got = await self.client.infer(served.shared().url, asked, model_name="pixels")
        (output,) = got.outputs
        return output.as_numpy()

    async def test_binary(self):
        names = batches()[0]
        self.check(names, await self.infer([FILES[name] for name in names], True))

    async def test_json(self):
        names = batches()[2]
        texts = [base64.b64encode(FILES[name]).decode() for name in names]
        self.check(names, await self.infer(texts, False))


class Curl(Case):
    def curl(self, model, file, *options):
        command = ["curl", "-fsS", "--noproxy", "*", "--max-time", "30", "--data-binary", "@-"]
        command += [*options, f"{served.shared().url}/v2/models/{model}"]
        return subprocess.run(command, input=file, capture_output=True, check=True).stdout

    def test_every_kind(self):
        for name in FILES:
            binary = "Accept: application/octet-stream"
            with tempfile.NamedTemporaryFile("r") as head:
                body = self.curl("pixels/infer", FILES[name], "-H", binary, "-D", head.name)
                lines = dict(line.lower().split(": ", 1) for line in head.read().splitlines()[1:-1])
            values = body[int(lines["inference-header-content-length"]) :]
            shape = (1, 3, SIDE, SIDE)
            self.check([name], numpy.frombuffer(values, "<f4").reshape(shape))

    def test_type(self):
        for name, kind in (("rgb420.jpg", "image/jpeg"), ("rgb.png", "image/png")):
            answer = self.curl("pixels/infer", FILES[name], "-H", f"Content-Type: {kind}")
            self.assertIn(b'"shape":[1,3,%d,%d]' % (SIDE, SIDE), answer)

    def test_labels(self):
        file = FILES["grey.png"]
        lines = self.curl("digits/infer?classes=3", file, "-H", "Accept: text/plain").decode()
        self.assertRegex(lines, r"\A(\d\.\d{6} \w+\n){3}\n(-?\d+\.\d{6} \w+\n){3}\Z")  # two outputs
        answer = self.curl("digits/infer", file).decode()
        for line in lines.split("\n\n")[0].splitlines():
            value, label = line.split()
            self.assertRegex(answer, rf'"{value}:\d:{label}"')


if __name__ == "__main__":
    unittest.main()
