"""deploy/haproxy.cfg in front of three daemons that share a folder of weights, under an open loop:
one is killed, one drained, one added, all replaced in turn. What HAProxy accepted is answered.

    CLUSTER_RATE=600 CLUSTER_SECONDS=6    requests a second, and how long each part takes"""
import contextlib
import http.server
import json
import os
import pathlib
import signal
import tempfile
import threading
import time
import unittest

from cluster import Cluster, Haproxy, Load
from processes import request, wait_until

RATE = float(os.environ.get("CLUSTER_RATE", 600))
SECONDS = float(os.environ.get("CLUSTER_SECONDS", 6))
CONNECTIONS = 64
FITS, DOES_NOT_FIT = 80_000, 81_920  # bytes of a body, as haproxy.cfg says
PICTURE = 150_528, 163_840  # and the buffer it says for that


def put_weights(daemon, name):
    weights = {"shape": [1, 1, 1, 1], "datatype": "FP32", "data": [1]}
    body = json.dumps({"weights": weights}).encode()
    return request(f"{daemon.url}/weights/{name}", body, "PUT", Content_Type="application/json")


def convolve(url, size, weights="one"):
    """A body of about that many bytes; the status."""
    width = size // 400
    address = f"{url}/conv?shape=1,1,100,{width}&weights={weights}"
    return request(address, bytes(400 * width), "POST", Content_Type="application/octet-stream")


def drain(daemon):
    """SIGTERM; it must end by itself, and well."""
    daemon.stop()


class Stages(unittest.TestCase):
    """Each starts with three daemons that are up, and leaves them so."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(3)
        cls.addClassCleanup(cls.cluster.__exit__)
        for workload in ("4k", "slow"):
            # Registers the workload's weights, which the others then read from the folder.
            Load(cls.cluster.path, cls.cluster.daemons[0].port, workload, 1, rate=10).over()
            for daemon in cls.cluster.daemons:
                wait_until(
                    lambda: request(f"{daemon.url}/weights/{workload}").status == 200,
                    f"{workload} is not everywhere",
                )

    @contextlib.contextmanager
    def load(self, name, workload="4k", rate=RATE, seconds=SECONDS):
        """What happens inside it happens in the middle of the load; its outcome comes last."""
        running = Load(
            self.cluster.path, self.cluster.haproxy.port, workload, seconds,
            rate=rate, connections=CONNECTIONS, patience_ms=5000,
        )
        time.sleep(seconds / 3)
        then = {}
        yield then
        then["outcome"] = outcome = running.over()
        print(f"{name}: {outcome}", flush=True)
        self.assertEqual(outcome.count["wrong"] + outcome.count["unanswered"], 0)

    def all_good(self, outcome):
        self.assertEqual(outcome.count["good"], outcome.due, outcome.text)

    def again(self, place):
        """Another daemon in the place of one that is gone, at its address."""
        port = self.cluster.daemons[place].port
        self.cluster.wait_down(port)
        self.cluster.start(port, place)
        self.cluster.wait_up(port)

    def test_1_killed(self):
        with self.load("killed") as then:
            self.cluster.daemons[0].kill()
        outcome = then["outcome"]
        # What was in flight there is sent again, but for an answer that had begun.
        self.assertLessEqual(outcome.due - outcome.count["good"], CONNECTIONS, outcome.text)
        self.assertGreater(outcome.worst(), 0.6, outcome.text)
        self.again(0)

    def test_2_drained(self):
        with self.load("drained") as then:
            drain(self.cluster.daemons[1])
        self.assertGreater(then["outcome"].worst(), 0.9, then["outcome"].text)
        self.all_good(then["outcome"])
        self.again(1)

    def test_3_added(self):
        with self.load("added") as then:
            added = self.cluster.start()
            self.cluster.haproxy.reload(self.cluster.ports())
        self.all_good(then["outcome"])
        # The load has its say to the new one, too.
        self.assertGreater(int(self.cluster.haproxy.servers()[added.port]["hrsp_2xx"]), 0)

    def test_4_all_replaced_in_turn(self):
        count = len(self.cluster.daemons)
        with self.load("replaced", seconds=SECONDS + 5 * count) as then:
            for place in range(count):
                drain(self.cluster.daemons[place])
                self.again(place)
        self.all_good(then["outcome"])

    def test_5_large_bodies_of_one_that_is_killed_are_reported(self):
        with self.load("large, killed", "slow", 150) as then:
            self.cluster.daemons[0].kill()
        outcome = then["outcome"]
        self.assertLessEqual(outcome.due - outcome.count["good"], CONNECTIONS, outcome.text)
        self.assertLessEqual(set(outcome.statuses), {200, 502, 503})
        self.assertGreater(outcome.worst(), 0.6, outcome.text)
        self.again(0)

    def test_6_large_bodies_when_haproxy_is_told_first(self):
        """As haproxy.cfg's head says for bodies that cannot be sent again."""
        with self.load("large, drained", "slow", 150) as then:
            haproxy, daemon = self.cluster.haproxy, self.cluster.daemons[1]
            name = haproxy.servers()[daemon.port]["svname"]
            haproxy.ask(f"set server xnord/{name} state drain")
            wait_until(
                lambda: haproxy.servers()[daemon.port]["scur"] == "0", "it still has work"
            )
            drain(daemon)
            self.cluster.wait_down(daemon.port)
            self.cluster.start(daemon.port, 1)
            haproxy.ask(f"set server xnord/{name} state ready")
            self.cluster.wait_up(daemon.port)
        self.all_good(then["outcome"])


class Refuses(http.server.BaseHTTPRequestHandler):
    """Says that it is ready, and to all work that it is draining, or nothing at all."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._answer(200)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        if self.server.mute:
            self.close_connection = True
        else:
            self._answer(503)

    do_DELETE = do_PUT = do_POST

    def _answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("Retry-After", "1")
        self.end_headers()

    def log_message(self, *_):
        pass


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Somebody hung up."""


class Sent(unittest.TestCase):
    """What is sent to another daemon, and what is not: a daemon beside one that refuses."""

    @classmethod
    def setUpClass(cls):
        cls.refuses = Quiet(("127.0.0.1", 0), Refuses)
        cls.refuses.asked, cls.refuses.mute = 0, False
        threading.Thread(target=cls.refuses.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.refuses.shutdown)
        cls.cluster = Cluster(1)
        cls.addClassCleanup(cls.cluster.__exit__)
        daemon = cls.cluster.daemons[0]
        cls.cluster.haproxy.kill()
        cls.ports = [daemon.port, cls.refuses.server_address[1]]
        cls.cluster.haproxy = Haproxy(cls.cluster.path, cls.ports)
        cls.url = cls.cluster.haproxy.url
        assert put_weights(daemon, "one").status == 201

    def statuses(self, size, mute, url=None):
        self.refuses.mute, self.refuses.asked = mute, 0
        found = {convolve(url or self.url, size).status for _ in range(6)}
        self.assertGreater(self.refuses.asked, 0)
        return found

    def test_what_fits_is_sent_again(self):
        for size in (400, 65_536, FITS):
            for mute in (False, True):
                with self.subTest(size=size, mute=mute):
                    self.assertEqual(self.statuses(size, mute), {200})

    def test_what_does_not_fit_is_reported(self):
        for size in (DOES_NOT_FIT, 10 * DOES_NOT_FIT):
            self.assertEqual(self.statuses(size, mute=False), {200, 503})
            self.assertEqual(self.statuses(size, mute=True), {200, 502})

    def test_a_picture_is_sent_again_with_larger_buffers(self):
        with tempfile.TemporaryDirectory(prefix="xnord-haproxy-") as folder:
            haproxy = Haproxy(pathlib.Path(folder), self.ports, tune_bufsize=PICTURE[1])
            try:
                self.assertEqual(self.statuses(PICTURE[0], False, haproxy.url), {200})
                self.assertEqual(self.statuses(PICTURE[1], False, haproxy.url), {200, 503})
            finally:
                haproxy.kill()

    def test_a_delete_is_sent_once(self):
        """It may have been done, and would find nothing the second time."""
        self.refuses.mute = True
        found = [request(f"{self.url}/weights/none", method="DELETE").status for _ in range(6)]
        self.assertEqual(set(found), {404, 502})

    def test_a_put_is_sent_again(self):
        self.refuses.mute = True
        found = []
        for _ in range(4):
            weights = {"shape": [1, 1, 1, 1], "datatype": "FP32", "data": [1]}
            body = json.dumps({"weights": weights}).encode()
            found.append(
                request(f"{self.url}/weights/two", body, "PUT", Content_Type="application/json")
            )
        self.assertLessEqual({answer.status for answer in found}, {200, 201})

    def test_what_is_one_daemons_is_refused(self):
        for path, method in (
            ("/metrics", "GET"),
            ("/v2/repository/models/digits/load", "POST"),
            ("/v2/repository/models/digits/unload", "POST"),
            ("/v2/systemsharedmemory/status", "GET"),
            ("/v2/systemsharedmemory/region/a/register", "POST"),
        ):
            body = b"{}" if method == "POST" else None
            self.assertEqual(request(self.url + path, body, method).status, 403, path)
        self.refuses.mute = False
        self.assertEqual(request(f"{self.url}/v2/repository/index", b"{}", "POST").status, 200)

    def test_figures(self):
        page = request(f"http://127.0.0.1:{self.cluster.haproxy.stats_port}/metrics")
        self.assertEqual(page.status, 200)
        self.assertIn(b'haproxy_server_status{proxy="xnord",server="xnord0"', page.body)
        page = request(f"http://127.0.0.1:{self.cluster.haproxy.stats_port}/")
        self.assertEqual(page.status, 200)


class Weights(unittest.TestCase):
    def test_all_daemons_have_what_one_was_given(self):
        with Cluster(3) as cluster:
            self.assertEqual(put_weights(cluster.haproxy, "one").status, 201)
            for daemon in cluster.daemons:
                wait_until(lambda: convolve(daemon.url, 400).status == 200, "no weights")
            cluster.daemons[0].send(signal.SIGKILL)
            cluster.daemons[0].ended()
            self.assertEqual(convolve(cluster.haproxy.url, 400).status, 200)
            again = cluster.start(cluster.daemons[0].port, 0)
            self.assertEqual(convolve(again.url, 400).status, 200)


if __name__ == "__main__":
    unittest.main()
