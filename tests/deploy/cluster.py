"""Daemons on loopback that share a folder of weights, HAProxy in front of them with
deploy/haproxy.cfg, and the load generator of bench-http, which does not wait for answers."""
import csv
import io
import json
import os
import pathlib
import re
import signal
import socket
import tempfile
import time

import setting
from processes import ROOT, Daemon, Process, free_port, request, wait_until

CONFIG = ROOT / "deploy/haproxy.cfg"
# As haproxy.cfg's head asks for, but for what is by default.
FLAGS = (
    "--max-connections", "1100", "--max-connections-per-address", "0",
    "--max-requests-per-client", "1024", "--max-bytes-per-client", "1G",
)


def replaced(text, pattern, new, count=1):
    """The text with that many places replaced, or an error: else the configuration that is tested
    would not be the one that is shipped."""
    text, found = re.subn(pattern, new, text, flags=re.MULTILINE)
    if found != count:
        raise AssertionError(f"{CONFIG}: {found} times instead of {count}: {pattern}")
    return text


class Haproxy(Process):
    """deploy/haproxy.cfg with other addresses, without a user of its own, in the foreground."""

    def __init__(self, folder, ports, tune_bufsize=None, variables=None):
        self.file = folder / "haproxy.cfg"
        self.socket = folder / "admin.sock"
        self.port, self.stats_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.tune_bufsize = tune_bufsize
        self._write(ports)
        environment = {**os.environ, **(variables or {})}
        if "HAPROXY_LIBRARIES" in environment:
            environment["LD_LIBRARY_PATH"] = environment["HAPROXY_LIBRARIES"]
        super().__init__(["haproxy", "-W", "-f", self.file], env=environment)
        self.wait_until(lambda: self._serves(ports), "HAProxy does not serve by all daemons")

    def _write(self, ports):
        text = CONFIG.read_text()
        text = replaced(text, r"^ *(user|group) haproxy\n", "", 2)
        text = replaced(text, "stats socket /run/haproxy/admin.sock", f"stats socket {self.socket}")
        text = replaced(text, r"^    bind :8080$", f"    bind 127.0.0.1:{self.port}")
        text = replaced(text, "127.0.0.1:8404", f"127.0.0.1:{self.stats_port}")
        lines = [f"    server xnord{i} 127.0.0.1:{port}\n" for i, port in enumerate(ports)]
        text = replaced(text, r"(^    server xnord\d 10\.0\.0\.1\d:8080\n)+", "".join(lines))
        if self.tune_bufsize:
            text = replaced(text, r"tune\.bufsize \d+$", f"tune.bufsize {self.tune_bufsize}")
        self.file.write_text(text)

    def ask(self, command):
        """The answer on the administration's socket."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.socket))
            s.sendall(command.encode() + b"\n")
            return s.makefile().read()

    def _rows(self):
        return list(csv.DictReader(io.StringIO(self.ask("show stat").lstrip("# "))))

    def servers(self):
        """By port: the line of HAProxy's own figures."""
        rows = self._rows()
        return {int(row["addr"].rsplit(":", 1)[1]): row for row in rows if row["addr"]}

    def backend(self):
        return next(r for r in self._rows() if (r["pxname"], r["svname"]) == ("xnord", "BACKEND"))

    def up(self):
        return {port for port, row in self.servers().items() if row["status"] == "UP"}

    def _serves(self, ports):
        try:
            return set(self.servers()) == set(ports) and self.up() == set(ports)
        except OSError:
            return False

    def reload(self, ports):
        """As systemctl reload does: another process serves, this one finishes what it has."""
        self._write(ports)
        self.send(signal.SIGUSR2)
        wait_until(lambda: self._serves(ports), self.text)


class Cluster:
    """As a context."""

    def __init__(self, count, *flags):
        self.folder = tempfile.TemporaryDirectory(prefix="xnord-cluster-")
        self.path = pathlib.Path(self.folder.name)
        (self.path / "weights").mkdir()
        self.flags = flags
        self.daemons = []
        self.haproxy = None
        try:
            for _ in range(count):
                self.start()
            self.haproxy = Haproxy(self.path, self.ports())
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in (self.haproxy, *self.daemons):
            if process and process.process.poll() is None:
                process.kill()
        self.folder.cleanup()

    def ports(self):
        return [daemon.port for daemon in self.daemons]

    def start(self, port=0, place=None):
        """Another daemon, at the end or in that place."""
        daemon = Daemon(
            setting.build() / "xnord", "--backend", "cpu", "--threads", "1", "--http-threads", "2",
            "--weights-dir", self.path / "weights", *FLAGS, *self.flags, port=port,
        )
        if place is None:
            self.daemons.append(daemon)
        else:
            self.daemons[place] = daemon
        return daemon

    def wait_up(self, *ports):
        wait_until(lambda: self.haproxy.up() >= set(ports), f"not up: {ports}")

    def wait_down(self, *ports):
        wait_until(lambda: not self.haproxy.up() & set(ports), f"not down: {ports}")


class Load:
    """bench-http load against a port, running; its outcomes when it is over."""

    def __init__(self, folder, port, workload="4k", seconds=8.0, **options):
        self.json = folder / f"load-{time.monotonic_ns()}.json"
        words = []
        for name, value in {"slice_ms": 500, "warmup": 0.5, **options}.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        self.began = time.monotonic()
        self.process = Process(
            [setting.build() / "bench-http", "load", "--port", str(port), "--json", self.json,
             "--workloads", workload, "--seconds", str(seconds), *words]
        )

    def over(self):
        _, text = self.process.ended()
        if not self.json.exists():
            raise RuntimeError(f"the generator ended without figures:\n{text}")
        return Outcome(json.loads(self.json.read_text()), text)


class Outcome:
    def __init__(self, rows, text):
        self.text = text
        self.row = next(r for r in rows if "workload" in r)
        self.count = {r["outcome"]: r["requests"] for r in rows if "outcome" in r}
        self.statuses = {r["status"]: r["requests"] for r in rows if "status" in r}
        self.slices = [r["good"] / r["due"] for r in rows if r.get("due")]
        self.due = sum(self.count.values())

    def share(self):
        return self.count["good"] / self.due

    def worst(self):
        return min(self.slices)

    def __str__(self):
        some = {name: n for name, n in self.count.items() if n}
        return (
            f"{self.due} due, {some}, statuses {self.statuses}, worst half second "
            f"{100 * self.worst():.1f}%, p99 {self.row['good_p99_ms']} ms, "
            f"most {self.row['good_max_ms']} ms"
        )
