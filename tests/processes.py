"""Programs that the Python tests run, the daemon above all, and plain HTTP requests to them. Only
the standard library."""
import contextlib
import ctypes
import json
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
START_SECONDS = 60
PR_SET_PDEATHSIG = 1


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def wait_until(true, what, seconds=START_SECONDS):
    """What true() returns, as soon as that is something."""
    end = time.monotonic() + seconds
    while not (found := true()):
        if time.monotonic() > end:
            raise TimeoutError(f"not in {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.02)
    return found


def free_port():
    """Of loopback; nobody has it until somebody takes it."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Process:
    """A program whose output goes to a file; it ends with this process at the latest."""

    def __init__(self, command, **options):
        self.name = pathlib.Path(command[0]).name
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log", prefix=f"{self.name}-")
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            preexec_fn=die_with_parent,
            **options,
        )

    def text(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def wait_until(self, true, what):
        """As the function, while the program runs; else it is ended."""
        try:
            return wait_until(lambda: self._runs() and true(), lambda: f"{what}:\n{self.text()}")
        except BaseException:
            self.kill()
            raise

    def _runs(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended by itself:\n{self.text()}")
        return True

    def send(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def ended(self):
        """Waits for its end; its exit status, and what it wrote."""
        try:
            status = self.process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        text = self.text()
        self.log.close()
        return status, text

    def stop(self):
        """Checks that it ends well."""
        self.send(signal.SIGTERM)
        status, text = self.ended()
        if status != 0:
            raise RuntimeError(f"{self.name} ended with status {status}:\n{text}")


class Daemon(Process):
    """A daemon on loopback, on a free port where none is named, ready."""

    def __init__(self, program, *flags, port=0, **options):
        super().__init__(
            [program, "--listen", "127.0.0.1", "--port", str(port), *flags], **options
        )
        self.address = self.wait_until(self._ready, "the daemon was not ready")
        self.port = int(self.address.rsplit(":", 1)[1])
        self.url = f"http://{self.address}"

    def _ready(self):
        found = re.search(r"listening on http://([^\s\"]+)", self.text())
        with contextlib.suppress(OSError):
            if found and request(f"http://{found[1]}/v2/health/ready").status == 200:
                return found[1]
        return None


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


def request(url, body=None, method=None, **headers):
    """A plain HTTP request, whatever its status. Headers: Content_Type="..."."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    call = urllib.request.Request(url, data=body, method=method, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(call, timeout=60) as got:
            return Answer(got.status, got.headers, got.read())
    except urllib.error.HTTPError as got:
        return Answer(got.code, got.headers, got.read())
