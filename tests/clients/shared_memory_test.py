"""System shared memory by tritonclient, with --allow-client-shm and without."""
import os
import unittest

import numpy
import served
import tritonclient.http as triton
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

COUNT = 30


class Region:
    """A region of ours that the daemon knows by the same name."""

    def __init__(self, test, name, size):
        self.name = f"{name}-{os.getpid()}"
        self.memory = shm.create_shared_memory_region(self.name, f"/xnord-{self.name}", size)
        test.addCleanup(shm.destroy_shared_memory_region, self.memory)
        test.client.register_system_shared_memory(self.name, f"/xnord-{self.name}", size)
        test.addCleanup(test.client.unregister_system_shared_memory, self.name)


class Allowed(unittest.TestCase):
    def setUp(self):
        self.client = triton.InferenceServerClient(served.shared().address)
        self.addCleanup(self.client.close)

    def given(self, region, offset=0):
        tensor = triton.InferInput("input", [COUNT, 8, 8, 1], "UINT8")
        tensor.set_shared_memory(region.name, COUNT * 64, offset)
        return tensor

    def test_both_ways(self):
        given = Region(self, "in", COUNT * 64)
        taken = Region(self, "out", COUNT * 80)
        shm.set_shared_memory_region(given.memory, [served.PICTURES[:COUNT]])
        outputs = []
        for number, name in enumerate(("scores", "logits")):
            output = triton.InferRequestedOutput(name)
            output.set_shared_memory(taken.name, COUNT * 40, number * COUNT * 40)
            outputs.append(output)
        result = self.client.infer("digits", [self.given(given)], outputs=outputs)
        for number, name in enumerate(("scores", "logits")):
            self.assertNotIn("data", result.get_output(name))
            values = shm.get_contents_as_numpy(
                taken.memory, numpy.float32, [COUNT, 10], number * COUNT * 40
            )
            numpy.testing.assert_array_equal(values.argmax(axis=1), served.RECOGNISED[:COUNT])

    def test_offset(self):
        given = Region(self, "in", 2 * COUNT * 64)
        shm.set_shared_memory_region(given.memory, [served.PICTURES[: 2 * COUNT]])
        result = self.client.infer("digits", [self.given(given, COUNT * 64)])
        answers = result.as_numpy("scores").argmax(axis=1)
        numpy.testing.assert_array_equal(answers, served.RECOGNISED[COUNT : 2 * COUNT])

    def test_status(self):
        given = Region(self, "in", COUNT * 64)
        names = {region["name"] for region in self.client.get_system_shared_memory_status()}
        self.assertIn(given.name, names)
        (status,) = self.client.get_system_shared_memory_status(given.name)
        self.assertEqual(int(status["byte_size"]), COUNT * 64)

    def test_out_of_bounds(self):
        given = Region(self, "in", COUNT * 64)
        for offset in (1, COUNT * 64, 2**62):
            with self.assertRaises(InferenceServerException):
                self.client.infer("digits", [self.given(given, offset)])

    def test_output_too_small(self):
        given = Region(self, "in", COUNT * 64)
        taken = Region(self, "out", COUNT * 40 - 1)
        output = triton.InferRequestedOutput("scores")
        output.set_shared_memory(taken.name, COUNT * 40 - 1)
        with self.assertRaises(InferenceServerException):
            self.client.infer("digits", [self.given(given)], outputs=[output])

    def test_larger_than_it_is(self):
        given = Region(self, "in", 64)
        with self.assertRaises(InferenceServerException):
            self.client.register_system_shared_memory("more", f"/xnord-{given.name}", 1 << 20)

    def test_missing(self):
        with self.assertRaises(InferenceServerException):
            self.client.register_system_shared_memory("gone", "/xnord-gone", 64)

    def test_unregistered(self):
        given = Region(self, "in", COUNT * 64)
        self.client.unregister_system_shared_memory(given.name)
        with self.assertRaisesRegex(InferenceServerException, given.name):
            self.client.infer("digits", [self.given(given)])


class NotAllowed(unittest.TestCase):
    def test_refused(self):
        daemon = served.Daemon("--model", f"digits={served.DIGITS}")
        self.addCleanup(daemon.stop)
        client = triton.InferenceServerClient(daemon.address)
        self.addCleanup(client.close)
        self.assertEqual(client.get_system_shared_memory_status(), [])
        client.unregister_system_shared_memory()
        with self.assertRaisesRegex(InferenceServerException, "allow-client-shm"):
            client.register_system_shared_memory("in", "/xnord-in", 64)

    def test_cuda_shared_memory(self):
        client = triton.InferenceServerClient(served.shared().address)
        self.addCleanup(client.close)
        self.assertEqual(client.get_cuda_shared_memory_status(), [])
        client.unregister_cuda_shared_memory()
        with self.assertRaises(InferenceServerException):
            client.register_cuda_shared_memory("in", b"handle", 0, 64)
