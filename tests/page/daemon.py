"""A daemon under test on a port that the kernel gives, and requests to it past the browser."""

import json
import re
import subprocess
import tempfile
import time
import urllib.request

KEY = "a-key-of-the-page-test-0123456789"


class Daemon:
    def __init__(self, program, *flags):
        self.log = tempfile.NamedTemporaryFile(mode="w+", suffix=".log")
        self.process = subprocess.Popen(
            [program, "--listen", "127.0.0.1", "--port", "0", "--backend", "cpu", *flags],
            stderr=self.log)
        until = time.monotonic() + 20
        while not (found := re.search(r"listening on (http\S+)", self.text())):
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"the daemon did not start:\n{self.text()}")
            time.sleep(0.02)
        self.url = found.group(1)

    def text(self):
        with open(self.log.name, encoding="utf-8") as log:
            return log.read()

    def get(self, path, key=None):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers)) as it:
            return it.read().decode()

    def infer(self, model, body):
        request = urllib.request.Request(f"{self.url}/v2/models/{model}/infer",
                                         json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())

    def stop(self):
        self.process.terminate()
        status = self.process.wait(40)
        self.log.close()
        return status
