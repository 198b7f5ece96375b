"""deploy/prometheus and deploy/grafana: the alerts against made-up series (promtool), and a real
Prometheus that collects from daemons under load: every query of every panel has values, every rule
is evaluated, and those fire that can be made to."""
import json
import math
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.parse

import dashboard
import setting
import yaml
from processes import ROOT, Daemon, Process, free_port, request

PROMETHEUS = ROOT / "deploy/prometheus"
DASHBOARD = ROOT / "deploy/grafana/xnord.json"
DIGITS = ROOT / "deploy/demo/digits"
ENOUGH_SECONDS = 6  # of load, for rates over RATE_WINDOW
RATE_WINDOW = "3s"


def promtool(*arguments, **options):
    command = ["promtool", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def rules():
    groups = yaml.safe_load((PROMETHEUS / "xnord.rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def metrics_in(query):
    """The names of metrics in a query."""
    return set(re.findall(r"\b(?:xnord|process)_\w+", query))


# ---- what is collected from ----

CONV = {
    "input": {"shape": [1, 1, 8, 8], "datatype": "FP32", "data": [1, -1, 2, -2] * 16},
    "weights": {"shape": [1, 1, 3, 3], "datatype": "FP32", "data": [1, -1, 1] * 3},
}
INFER = {
    "inputs": [
        {"name": "input", "shape": [2, 8, 8, 1], "datatype": "UINT8", "data": [0, 8, 15, 3] * 32}
    ]
}


def work(url):
    """One of each: new and known inline weights, registered ones, a model, and what is wrong."""
    ours = json.loads(json.dumps(CONV))
    ours["weights"]["data"][0] = time.monotonic()
    for path, body in (
        ("/conv", CONV),
        ("/conv", ours),
        ("/conv", {**CONV, "weights": "kept"}),
        ("/conv", {**CONV, "stride": 0}),
        ("/v2/models/digits/infer", INFER),
    ):
        request(url + path, json.dumps(body).encode(), Content_Type="application/json")
    request(f"{url}/v2/health/ready")
    request(f"{url}/nothing")


def ask(url):
    request(f"{url}/conv", json.dumps(CONV).encode(), Content_Type="application/json")


def held_back(daemon):
    """A connection whose request is accepted, and whose body does not come."""
    head = "POST /conv HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection = socket.create_connection(("127.0.0.1", daemon.port))
    connection.sendall(f"{head}Content-Length: 99\r\n\r\n{{".encode())
    return connection


class Load:
    """Threads that do something again and again, as a context."""

    def __init__(self, what, threads):
        self.what, self.over, self.wrong = what, threading.Event(), []
        self.threads = [threading.Thread(target=self._run) for _ in range(threads)]

    def _run(self):
        try:
            while not self.over.is_set():
                self.what()
        except Exception as error:  # seen by who waits for the end
            self.wrong.append(error)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()
        if self.wrong:
            raise self.wrong[0]


class Prometheus(Process):
    """deploy/prometheus as it stands, but for the addresses and how often it looks."""

    def __init__(self, folder, targets):
        shutil.copytree(PROMETHEUS, folder / "config")
        config = folder / "config/prometheus.yml"
        text = config.read_text()
        for old, new in (
            ('targets: ["xnord:8080"]', f"targets: {json.dumps(targets)}"),
            ("scrape_interval: 5s", "scrape_interval: 500ms"),
            ("scrape_timeout: 4s", "scrape_timeout: 500ms"),
            ("evaluation_interval: 5s", "evaluation_interval: 500ms"),
        ):
            if text.count(old) != 1:
                raise AssertionError(f"{config}: not once: {old}")
            text = text.replace(old, new)
        config.write_text(text)
        self.url = f"http://127.0.0.1:{free_port()}"
        super().__init__(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={self.url[7:]}",
            ]
        )
        self.wait_until(self._ready, "Prometheus was not ready")

    def _ready(self):
        try:
            return request(f"{self.url}/-/ready").status == 200
        except OSError:
            return False

    def ask(self, path, **parameters):
        got = request(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}")
        answer = got.json()
        if answer["status"] != "success":
            raise AssertionError(f"{path} {parameters}: {answer}")
        return answer["data"]

    def series(self, query, start, end):
        """Those with at least one value that is a number, over that time."""
        result = self.ask("query_range", query=query, start=start, end=end, step=0.5)["result"]
        return [
            one for one in result if any(math.isfinite(float(v)) for _, v in one["values"])
        ]

    def alerts(self):
        """Alert and instance, of all that are pending or firing."""
        found = self.ask("alerts")["alerts"]
        return {(a["labels"]["alertname"], a["labels"].get("instance")) for a in found}


class Collected(unittest.TestCase):
    """A daemon that does a bit of everything, one that refuses, one that dies; Prometheus."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="xnord-monitoring-")
        cls.addClassCleanup(cls.folder.cleanup)
        folder = pathlib.Path(cls.folder.name)
        (folder / "weights").mkdir()
        xnord = setting.build() / "xnord"
        cls.daemon = Daemon(
            xnord, "--backend", "cpu", "--threads", "2", "--model", f"digits={DIGITS}",
            "--weights-dir", folder / "weights",
        )
        cls.addClassCleanup(cls.daemon.stop)
        put = json.dumps({"weights": CONV["weights"]}).encode()
        request(f"{cls.daemon.url}/weights/kept", put, "PUT", Content_Type="application/json")
        cls.full = Daemon(
            xnord, "--backend", "cpu", "--threads", "1", "--queue-depth", "1",
            "--body-min-rate", "0",
        )
        cls.addClassCleanup(cls.full.stop)
        held = held_back(cls.full)
        cls.addClassCleanup(held.close)
        cls.dead = Daemon(xnord, "--backend", "cpu", "--threads", "1")
        cls.addClassCleanup(cls.dead.kill)
        targets = [d.address for d in (cls.daemon, cls.full, cls.dead)]
        cls.prometheus = Prometheus(folder, targets)
        cls.addClassCleanup(cls.prometheus.stop)
        cls.start = time.time()
        with Load(lambda: work(cls.daemon.url), 3), Load(lambda: ask(cls.full.url), 1):
            time.sleep(ENOUGH_SECONDS)
            cls.end = time.time()

    def test_no_panel_is_empty(self):
        panels = dashboard.panels(json.loads(DASHBOARD.read_text()))
        self.assertGreater(len(panels), 20)
        values = {"$__rate_interval": RATE_WINDOW, "$job": ".*", "$instance": ".*"}
        for panel in panels:
            self.assertTrue(panel["targets"], panel["title"])
            for target in panel["targets"]:
                query = dashboard.filled(target["expr"], values)
                with self.subTest(panel=panel["title"], query=query):
                    self.assertNotIn("$", query)
                    self.assertTrue(self.prometheus.series(query, self.start, self.end))

    def test_annotations_can_be_asked(self):
        for note in json.loads(DASHBOARD.read_text())["annotations"]["list"]:
            values = {"$__rate_interval": RATE_WINDOW, "$job": ".*", "$instance": ".*"}
            query = dashboard.filled(note["expr"], values)
            self.prometheus.series(query, self.start, self.end)

    def test_variables_have_values(self):
        names = {}
        for variable in json.loads(DASHBOARD.read_text())["templating"]["list"]:
            if variable["type"] != "query":
                continue
            found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            series = found[1].replace('"$job"', '".*"')
            names[variable["name"]] = self.prometheus.ask(
                f"label/{found[2]}/values", **{"match[]": series}
            )
        self.assertEqual(names["job"], ["xnord"])
        self.assertEqual(len(names["instance"]), 3)

    def test_a_variable_chooses(self):
        values = {
            "$__rate_interval": RATE_WINDOW,
            "$job": "xnord",
            "$instance": self.full.address.replace(".", "[.]"),
        }
        for panel in dashboard.panels(json.loads(DASHBOARD.read_text())):
            for target in panel["targets"]:
                query = dashboard.filled(target["expr"], values)
                for one in self.prometheus.series(query, self.start, self.end):
                    instance = one["metric"].get("instance", self.full.address)
                    self.assertEqual(instance, self.full.address, query)

    def test_all_rules_are_evaluated(self):
        groups = self.prometheus.ask("rules")["groups"]
        found = [rule for group in groups for rule in group["rules"]]
        self.assertEqual([r["name"] for r in found], [r["alert"] for r in rules()])
        for rule in found:
            self.assertEqual((rule["health"], rule.get("lastError")), ("ok", None), rule["name"])

    def test_alerts_name_who_it_is(self):
        """In this time `for` lets none of them fire; they are pending."""
        self.dead.kill()
        for name, daemon in (("XnordQueueFull", self.full), ("XnordDown", self.dead)):
            self.prometheus.wait_until(
                lambda: (name, daemon.address) in self.prometheus.alerts(), f"no {name}"
            )
        well = self.daemon.address
        self.assertEqual([a for a in self.prometheus.alerts() if a[1] == well], [])

    def test_metrics_of_rules_and_panels_exist(self):
        """A name that nobody has would never fire, and never show."""
        page = request(f"{self.daemon.url}/metrics").body.decode()
        have = set(re.findall(r"^(\w+)", page, re.MULTILINE))
        queries = [rule["expr"] for rule in rules()]
        for panel in dashboard.panels(json.loads(DASHBOARD.read_text())):
            queries += [target["expr"] for target in panel["targets"]]
        named = set().union(*map(metrics_in, queries))
        self.assertGreater(len(named), 20)
        self.assertEqual(named - have, set())


class Checked(unittest.TestCase):
    def test_configuration_and_rules(self):
        for arguments in (
            ("check", "config", PROMETHEUS / "prometheus.yml"),
            ("check", "rules", PROMETHEUS / "xnord.rules.yml"),
            ("test", "rules", ROOT / "tests/deploy/rules_test.yml"),
        ):
            got = promtool(*arguments)
            self.assertEqual(got.returncode, 0, got.stdout + got.stderr)

    def test_every_alert_is_tested(self):
        tests = yaml.safe_load((ROOT / "tests/deploy/rules_test.yml").read_text())["tests"]
        fired = {
            case["alertname"]: any(c["exp_alerts"] for t in tests for c in t["alert_rule_test"]
                                   if c["alertname"] == case["alertname"])
            for t in tests for case in t["alert_rule_test"]
        }
        self.assertEqual(fired, {rule["alert"]: True for rule in rules()})

    def test_a_wrong_rule_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            wrong = pathlib.Path(folder) / "wrong.yml"
            text = (PROMETHEUS / "xnord.rules.yml").read_text()
            wrong.write_text(text.replace("xnord_ready == 0", "xnord_ready == "))
            self.assertNotEqual(promtool("check", "rules", wrong).returncode, 0)

    def test_dashboard_is_grafanas(self):
        self.assertEqual(dashboard.faults(json.loads(DASHBOARD.read_text())), [])

    def test_faults_of_a_dashboard_are_found(self):
        for change in dashboard.CHANGES:
            wrong = json.loads(DASHBOARD.read_text())
            change(wrong)
            self.assertNotEqual(dashboard.faults(wrong), [], change)

    def test_compose_mounts_what_is_there(self):
        compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
        for name, service in compose["services"].items():
            for volume in service.get("volumes", []):
                if volume.startswith("."):
                    source = ROOT / "deploy" / volume.split(":")[0]
                    self.assertTrue(source.exists(), f"{name}: {volume}")
        # The dashboard lies in the folder that its provider names, and its home is that file.
        grafana = compose["services"]["grafana"]
        provider = yaml.safe_load(
            (ROOT / "deploy/grafana/provisioning/dashboards/xnord.yml").read_text()
        )
        place = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
        self.assertIn(f"./grafana/xnord.json:{place}:ro", grafana["volumes"])
        self.assertEqual(
            provider["providers"][0]["options"]["path"], str(pathlib.Path(place).parent)
        )


if __name__ == "__main__":
    unittest.main()
