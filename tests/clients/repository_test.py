"""The model repository by tritonclient: index, load, unload, and what a load may bring along."""
import json
import signal
import threading
import time
import unittest

import numpy
import served
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException


def pixels(pictures):
    given = triton.InferInput("input", list(pictures.shape), "UINT8")
    return given.set_data_from_numpy(pictures)


class Repository(unittest.TestCase):
    def setUp(self):
        self.served = served.Served()
        self.addCleanup(self.served.stop)
        self.client = triton.InferenceServerClient(self.served.address)
        self.addCleanup(self.client.close)

    def states(self):
        index = self.client.get_model_repository_index()
        return {model["name"]: model.get("state") for model in index}

    def answers(self, model, count=5):
        result = self.client.infer(model, [pixels(served.PICTURES[:count])])
        numpy.testing.assert_array_equal(
            result.as_numpy("scores").argmax(axis=1), served.RECOGNISED[:count]
        )

    def test_index(self):
        states = self.states()
        for name in ("digits", "digits-fp32", "digits-fp16", "small", "versions"):
            self.assertEqual(states[name], "READY", name)
        self.assertEqual(states["broken"], "UNAVAILABLE")
        (broken,) = (
            model
            for model in self.client.get_model_repository_index()
            if model["name"] == "broken"
        )
        self.assertIn("format", broken["reason"])

    def test_unload_and_load(self):
        self.answers("small", 3)
        self.client.unload_model("small")
        self.assertFalse(self.client.is_model_ready("small"))
        self.assertEqual(self.states()["small"], "UNAVAILABLE")
        with self.assertRaisesRegex(InferenceServerException, "small"):
            self.answers("small", 1)
        self.client.load_model("small")
        self.assertTrue(self.client.is_model_ready("small"))
        self.answers("small", 3)

    def test_load_again_reads_the_files_anew(self):
        path = self.served.models / "small" / "config.json"
        path.write_text(json.dumps(dict(json.loads(path.read_text()), max_batch_size=9)))
        self.client.load_model("small")
        self.assertEqual(self.client.get_model_config("small")["max_batch_size"], 9)
        self.answers("small", 9)

    def test_a_load_that_fails_leaves_what_serves(self):
        (self.served.models / "small" / "model.safetensors").write_bytes(b"torn")
        with self.assertRaisesRegex(InferenceServerException, "small|safetensors"):
            self.client.load_model("small")
        self.answers("small", 2)

    def test_new_folder(self):
        served.write_model(self.served.models / "late", "UINT8")
        self.client.load_model("late")
        self.answers("late")

    def test_load_with_a_configuration(self):
        config = json.loads((served.DIGITS / "config.json").read_text())
        config["max_batch_size"] = 2
        self.client.load_model("small", config=json.dumps(config))
        self.assertEqual(self.client.get_model_config("small")["max_batch_size"], 2)
        self.answers("small", 2)

    def test_load_with_files(self):
        config = (served.DIGITS / "config.json").read_text()
        files = {
            f"file:1/{name}": (served.DIGITS / name).read_bytes()
            for name in ("model.safetensors", "labels.txt")
        }
        self.client.load_model("small", config=config, files=files)
        self.answers("small", 20)

    def test_loads_beside_traffic(self):
        """Every answer comes, and is right, while the model is loaded again and again."""
        done, wrong = threading.Event(), []

        def ask():
            with triton.InferenceServerClient(self.served.address) as client:
                while not done.is_set():
                    try:
                        got = client.infer("digits-fp32", [floats]).as_numpy("scores")
                        if (got.argmax(axis=1) != served.RECOGNISED[:8]).any():
                            wrong.append(got)
                    except InferenceServerException as error:
                        wrong.append(error)

        floats = triton.InferInput("input", [8, 8, 8, 1], "FP32")
        floats.set_data_from_numpy(served.PICTURES[:8].astype("f"))
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(20):
                self.client.load_model("digits-fp32")
        finally:
            done.set()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])

    def test_hang_up_reads_the_repository_anew(self):
        served.write_model(self.served.models / "late", "UINT8")
        self.served.daemon.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 20
        while not self.client.is_model_ready("late") and time.monotonic() < end:
            time.sleep(0.02)
        self.answers("late")

    def test_unknown(self):
        with self.assertRaisesRegex(InferenceServerException, "nothing"):
            self.client.load_model("nothing")
        with self.assertRaisesRegex(InferenceServerException, "nothing"):
            self.client.unload_model("nothing")
        with self.assertRaises(InferenceServerException):
            self.client.load_model("../models/small")
