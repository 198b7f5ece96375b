"""perf_analyzer of tritonclient, in each of its ways to make load, against the digits network."""
import base64
import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest

import served

sys.path.insert(0, str(served.ROOT / "tests" / "pictures"))
import make  # noqa: E402

SECONDS = 60  # of a run, at most
# Windows of 300 ms, three of which make a measurement; how steady they are is not what is tested.
SHORT = ["--measurement-interval", "300", "--stability-percentage", "900", "--max-trials", "6"]


class PerfAnalyzer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = served.build() / "clients" / "perf_analyzer"
        if not (cls.folder / "perf_analyzer").exists():
            raise unittest.SkipTest("perf_analyzer is there for x86_64 only")

    def run_it(self, *options, model="digits"):
        """Its report, a row a load; fails where it does, or saw an error."""
        libraries = [str(self.folder), os.environ.get("LD_LIBRARY_PATH", "")]
        environment = dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, libraries)))
        with tempfile.NamedTemporaryFile("r", suffix=".csv") as report:
            command = [str(self.folder / "perf_analyzer"), "-m", model, "-i", "http"]
            command += ["-u", served.shared().address, "-f", report.name, *SHORT, *options]
            done = subprocess.run(
                command,
                env=environment,
                timeout=SECONDS,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                preexec_fn=served.die_with_parent,
            )
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertNotRegex(done.stdout, r"(?i)failed|error|unable", done.stdout)
            self.assertRegex(done.stdout, r"Avg request latency|Request count")
            rows = list(csv.DictReader(report))
        self.assertTrue(rows, done.stdout)
        for row in rows:
            self.assertGreater(float(row["Inferences/Second"]), 10, done.stdout)
        return rows

    def test_concurrency(self):
        rows = self.run_it("--concurrency-range", "1:9:4")
        self.assertEqual({row["Concurrency"] for row in rows}, {"1", "5", "9"})

    def test_server_side_times(self):
        (row,) = self.run_it("--concurrency-range", "4")
        for part in ("Server Queue", "Server Compute Input", "Server Compute Infer"):
            self.assertGreaterEqual(float(row[part]), 0)
        self.assertGreater(float(row["Server Compute Infer"]), 0)

    def test_asynchronous(self):
        self.run_it("--async", "--concurrency-range", "16")

    def test_request_rate(self):
        (row,) = self.run_it("--request-rate-range", "200", "--request-distribution", "poisson")
        self.assertEqual(float(row["Request Rate"]), 200)

    def test_batches(self):
        self.run_it("-b", "16", "--concurrency-range", "2")

    def test_json(self):
        formats = ["--input-tensor-format", "json", "--output-tensor-format", "json"]
        self.run_it(*formats, "--concurrency-range", "2")

    def test_fp32_model(self):
        self.run_it("--concurrency-range", "2", model="digits-fp32")

    def test_version(self):
        self.run_it("-x", "1", "--concurrency-range", "2")

    def test_system_shared_memory(self):
        self.run_it("--shared-memory", "system", "--concurrency-range", "2")

    def test_pictures(self):
        """Its kind "openai" sends JSON as it is, to any path: inference requests with pictures."""
        calls = []
        for file in make.pictures(317, 211).values():
            data = [base64.b64encode(file).decode()]
            given = {"name": "input", "shape": [1], "datatype": "BYTES", "data": data}
            calls.append({"payload": [{"inputs": [given]}]})
        before = self.inferences("pixels")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as data:
            json.dump({"data": calls}, data)
            data.flush()
            kind = ["--service-kind", "openai", "--endpoint", "v2/models/pixels/infer"]
            count = ["--request-count", str(10 * len(calls))]
            self.run_it(*kind, *count, "--input-data", data.name, "--async", model="pixels")
        after = self.inferences("pixels")
        self.assertGreaterEqual(after["success"], before["success"] + 10 * len(calls))
        self.assertEqual(after["fail"], before["fail"])

    def inferences(self, model):
        got = served.request(f"{served.shared().url}/v2/models/{model}/stats").json()
        (stats,) = got["model_stats"]
        return {kind: stats["inference_stats"][kind]["count"] for kind in ("success", "fail")}

    def test_requests_counted(self):
        rows = self.run_it("--request-count", "200", "--concurrency-range", "2")
        self.assertEqual(len(rows), 1)
