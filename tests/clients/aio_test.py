"""tritonclient's asyncio client."""
import asyncio
import unittest

import numpy
import served
import tritonclient.http.aio as triton
from tritonclient.utils import InferenceServerException


def pixels(pictures, binary=True):
    given = triton.InferInput("input", list(pictures.shape), "UINT8")
    return given.set_data_from_numpy(pictures, binary_data=binary)


class Aio(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = triton.InferenceServerClient(served.shared().address)
        self.addAsyncCleanup(self.client.close)

    async def test_server(self):
        self.assertTrue(await self.client.is_server_live())
        self.assertTrue(await self.client.is_server_ready())
        self.assertEqual((await self.client.get_server_metadata())["name"], "xnord")

    async def test_model(self):
        self.assertTrue(await self.client.is_model_ready("digits"))
        self.assertFalse(await self.client.is_model_ready("nothing"))
        self.assertEqual((await self.client.get_model_metadata("digits"))["name"], "digits")
        self.assertEqual((await self.client.get_model_config("digits"))["max_batch_size"], 1024)
        stats = await self.client.get_inference_statistics("digits")
        self.assertEqual(stats["model_stats"][0]["name"], "digits")
        index = await self.client.get_model_repository_index()
        self.assertIn("digits", {model["name"] for model in index})

    async def test_many_at_once(self):
        calls = [
            self.client.infer("digits", [pixels(served.PICTURES[i : i + 1])]) for i in range(64)
        ]
        got = [result.as_numpy("scores").argmax() for result in await asyncio.gather(*calls)]
        numpy.testing.assert_array_equal(got, served.RECOGNISED[:64])

    async def test_forms_agree(self):
        pictures = served.PICTURES[:9]
        wanted = (await self.client.infer("digits", [pixels(pictures)])).as_numpy("logits")
        for binary in (True, False):
            outputs = [triton.InferRequestedOutput("logits", binary_data=binary)]
            got = await self.client.infer("digits", [pixels(pictures, binary)], outputs=outputs)
            numpy.testing.assert_array_equal(got.as_numpy("logits"), wanted)

    async def test_compression(self):
        for algorithm in ("gzip", "deflate"):
            got = await self.client.infer(
                "digits",
                [pixels(served.PICTURES[:99])],
                request_compression_algorithm=algorithm,
                response_compression_algorithm=algorithm,
            )
            answers = got.as_numpy("scores").argmax(axis=1)
            numpy.testing.assert_array_equal(answers, served.RECOGNISED[:99])

    async def test_errors(self):
        with self.assertRaisesRegex(InferenceServerException, "nothing"):
            await self.client.infer("nothing", [pixels(served.PICTURES[:1])])
        with self.assertRaisesRegex(InferenceServerException, "shape"):
            await self.client.infer("digits", [pixels(served.PICTURES[0])])
        with self.assertRaisesRegex(InferenceServerException, "nothing"):
            await self.client.load_model("nothing")
