"""KServe's REST client, and the calls that its agent makes."""
import unittest

import httpx
import numpy
import served
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput


def question(pictures, binary, outputs=None, name="input"):
    given = InferInput(name, list(pictures.shape), "UINT8")
    given.set_data_from_numpy(pictures, binary_data=binary)
    return InferRequest(model_name="digits", infer_inputs=[given], request_outputs=outputs)


def answers(response):
    (scores,) = (output for output in response.outputs if output.name == "scores")
    return scores.as_numpy().argmax(axis=1)


class Kserve(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.url = served.shared().url
        self.client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=30))
        self.addAsyncCleanup(self.client.close)

    async def test_health(self):
        self.assertTrue(await self.client.is_server_live(self.url))
        self.assertTrue(await self.client.is_server_ready(self.url))
        self.assertTrue(await self.client.is_model_ready(self.url, "digits"))
        self.assertFalse(await self.client.is_model_ready(self.url, "nothing"))

    async def test_json(self):
        got = await self.client.infer(
            self.url, question(served.PICTURES[:20], False), model_name="digits"
        )
        self.assertEqual(got.model_name, "digits")
        numpy.testing.assert_array_equal(answers(got), served.RECOGNISED[:20])

    async def test_binary(self):
        outputs = [RequestedOutput("scores", {"binary_data": True})]
        got = await self.client.infer(
            self.url, question(served.PICTURES, True, outputs), model_name="digits"
        )
        numpy.testing.assert_array_equal(answers(got), served.RECOGNISED)

    async def test_binary_in_json_out(self):
        outputs = [RequestedOutput("scores", {"binary_data": False})]
        got = await self.client.infer(
            self.url, question(served.PICTURES[:9], True, outputs), model_name="digits"
        )
        numpy.testing.assert_array_equal(answers(got), served.RECOGNISED[:9])

    async def test_dict(self):
        data = served.PICTURES[0].ravel().tolist()
        given = {"name": "input", "shape": [1, 8, 8, 1], "datatype": "UINT8", "data": data}
        body = {"id": "one", "model_name": "digits", "inputs": [given]}
        got = await self.client.infer(self.url, body, model_name="digits")
        self.assertEqual(got.id, "one")
        self.assertEqual(answers(got)[0], served.RECOGNISED[0])

    async def test_errors(self):
        for model, pictures, name in (
            ("nothing", served.PICTURES[:1], "input"),
            ("digits", served.PICTURES[0], "input"),
            ("digits", served.PICTURES[:1], "image"),
        ):
            with self.assertRaises(httpx.HTTPStatusError) as caught:
                await self.client.infer(
                    self.url, question(pictures, True, name=name), model_name=model
                )
            self.assertIn(caught.exception.response.status_code, (400, 404))
            self.assertIn("error", caught.exception.response.json())


class Agent(unittest.TestCase):
    """KServe's agent loads and unloads by POST with {} and wants 200."""

    def test_load_and_unload(self):
        here = served.Served()
        self.addCleanup(here.stop)
        for verb in ("unload", "load", "load", "unload"):
            got = served.request(
                f"{here.url}/v2/repository/models/small/{verb}",
                b"{}",
                Content_Type="application/json",
            )
            self.assertEqual(got.status, 200, got.body)
