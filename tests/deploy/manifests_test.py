"""deploy/kubernetes and deploy/kserve: built by kustomize (kubectl's), held to the schemas of
Kubernetes and KServe, and to the daemon: its settings, probes, drain, metrics and image."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import jsonschema
import kserve.models
import kubernetes.client
import kubernetes_validate
import setting
import yaml
from processes import ROOT, Daemon, request

KUBERNETES = ROOT / "deploy/kubernetes"
KSERVE = ROOT / "deploy/kserve"
DIGITS = ROOT / "deploy/demo/digits"
OVERLAYS = ("cpu", "gpu")
VERSIONS = ("1.27.0", kubernetes_validate.latest_version())  # autoscaling/v2 is of 1.23
STOP_SECONDS = 2  # at most, after the drain
MARGIN_SECONDS = 5

# What a ServiceMonitor may be, of the fields that are used here. The definition itself is the
# operator's; no package has it.
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
DURATION = {"type": "string", "pattern": r"^(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?$"}
ENDPOINT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "port": {"type": "string"},
        "path": {"type": "string", "pattern": "^/"},
        "scheme": {"enum": ["http", "https"]},
        "interval": DURATION,
        "scrapeTimeout": DURATION,
        "authorization": {"type": "object"},
    },
}
SERVICE_MONITOR = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["endpoints", "selector"],
            "additionalProperties": False,
            "properties": {
                "jobLabel": {"type": "string"},
                "selector": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"matchLabels": LABELS},
                },
                "namespaceSelector": {"type": "object"},
                "endpoints": {"type": "array", "minItems": 1, "items": ENDPOINT},
            },
        }
    },
}


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document]


# ---- kustomize ----


def kubectl_minor():
    got = subprocess.run(
        ["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, check=True
    )
    return int(re.match(r"\d+", json.loads(got.stdout)["clientVersion"]["minor"])[0])


def in_old_words(folder):
    """For kubectl before 1.21, whose kustomize (2.0.3) calls some fields otherwise. What it does
    with them is the same."""
    for path in folder.rglob("kustomization.yaml"):
        file = yaml.safe_load(path.read_text())
        resources = file.pop("resources")
        file["bases"] = [r for r in resources if not r.endswith(".yaml")]
        file["resources"] = [r for r in resources if r.endswith(".yaml")]
        file["patchesStrategicMerge"] = [patch["path"] for patch in file.pop("patches", [])]
        path.write_text(yaml.safe_dump(file))


def built(part):
    """What `kubectl kustomize` makes of a folder of deploy/kubernetes."""
    with tempfile.TemporaryDirectory(prefix="xnord-kustomize-") as place:
        folder = pathlib.Path(place) / "kubernetes"
        shutil.copytree(KUBERNETES, folder)
        if kubectl_minor() < 21:
            in_old_words(folder)
        got = subprocess.run(
            ["kubectl", "kustomize", str(folder / part)],
            capture_output=True, text=True, timeout=60,
        )
    if got.returncode:
        raise AssertionError(got.stderr)
    return documents(got.stdout)


_built = {}


def of(part):
    if part not in _built:
        _built[part] = built(part)
    return _built[part]


def one(part, kind):
    found = [d for d in of(part) if d["kind"] == kind]
    if len(found) != 1:
        raise AssertionError(f"{part} has {len(found)} of {kind}")
    return found[0]


def kserve_object(name):
    return documents((KSERVE / f"{name}.yaml").read_text())[0]


# ---- the daemon's settings ----


def help_text():
    xnord = setting.build() / "xnord"
    return subprocess.run([xnord, "--help"], capture_output=True, text=True, check=True).stdout


def settings():
    """By environment variable: the flag."""
    found = {}
    for block in re.split(r"\n  --", help_text())[1:]:
        variable = re.search(r"\b(XNORD_\w+)\]", re.sub(r"\s+", " ", block))
        if variable:
            found[variable[1]] = re.match(r"[a-z-]+", block)[0]
    return found


def bytes_of(text):
    number, unit = re.fullmatch(r"(\d+)(K|M|G|Ki|Mi|Gi)?", text).groups()
    return int(number) << {None: 0, "K": 10, "M": 20, "G": 30}[unit[:1] if unit else None]


def environment(container):
    return {e["name"]: e["value"] for e in container.get("env", [])}


def drain_seconds(container):
    """preStop, the grace time, the last connections."""
    command = container["lifecycle"]["preStop"]["exec"]["command"]
    grace_ms = int(environment(container)["XNORD_GRACE_MS"])
    return int(command[-1]) + grace_ms / 1000 + STOP_SECONDS


def dockerfile():
    return (ROOT / "Dockerfile").read_text()


def container_of(name):
    """Of an overlay, or of KServe's runtime."""
    if name == "kserve":
        return kserve_object("servingruntime")["spec"]["containers"][0]
    return one(f"overlays/{name}", "Deployment")["spec"]["template"]["spec"]["containers"][0]


CONTAINERS = (*OVERLAYS, "kserve")


class Schemas(unittest.TestCase):
    def test_kubernetes(self):
        for overlay in OVERLAYS:
            for document in of(f"overlays/{overlay}"):
                for version in VERSIONS:
                    with self.subTest(overlay=overlay, kind=document["kind"], version=version):
                        kubernetes_validate.validate(document, version, strict=True)

    def test_kinds(self):
        for overlay in OVERLAYS:
            kinds = sorted(d["kind"] for d in of(f"overlays/{overlay}"))
            self.assertEqual(
                kinds,
                ["Deployment", "HorizontalPodAutoscaler", "NetworkPolicy", "PersistentVolumeClaim",
                 "PodDisruptionBudget", "Service"],
            )
            self.assertTrue(all(d["metadata"]["name"] == "xnord" for d in of(f"overlays/{overlay}")))

    def test_service_monitor(self):
        jsonschema.validate(one("monitoring", "ServiceMonitor"), SERVICE_MONITOR)

    def test_kserve(self):
        for name, kind in (
            ("servingruntime", "V1alpha1ServingRuntime"),
            ("inferenceservice", "V1beta1InferenceService"),
        ):
            self.assertEqual(unknown(kserve_object(name), kind), [])

    def test_faults_are_found(self):
        deployment = one("overlays/cpu", "Deployment")
        pod = deployment["spec"]["template"]["spec"]
        for wrong in (
            {**deployment, "speck": {}},
            changed(deployment, pod, "terminationGracePeriodSeconds", "50"),
            changed(deployment, pod["containers"][0], "livenesProbe", {}),
        ):
            with self.assertRaises(kubernetes_validate.ValidationError):
                kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)
        runtime = kserve_object("servingruntime")
        runtime["spec"]["supportedModelFormats"][0]["autoselect"] = True
        runtime["spec"]["containers"][0]["startupProbe"]["httpGet"]["pth"] = "/"
        self.assertEqual(len(unknown(runtime, "V1alpha1ServingRuntime")), 2)
        monitor = one("monitoring", "ServiceMonitor")
        monitor = json.loads(json.dumps(monitor).replace("scrapeTimeout", "timeout"))
        with self.assertRaises(jsonschema.ValidationError):
            jsonschema.validate(monitor, SERVICE_MONITOR)

    def test_every_file_is_used(self):
        """None lies beside a kustomization that does not name it."""
        for path in KUBERNETES.rglob("kustomization.yaml"):
            file = yaml.safe_load(path.read_text())
            named = {r for r in file["resources"] if r.endswith(".yaml")}
            named |= {patch["path"] for patch in file.get("patches", [])}
            there = {p.name for p in path.parent.glob("*.yaml")} - {"kustomization.yaml"}
            self.assertEqual(named, there, path)


def changed(document, part, key, value):
    """A copy of the document in which part, which is in it, has another value."""
    had, before = key in part, part.get(key)
    part[key] = value
    copy = json.loads(json.dumps(document))
    if had:
        part[key] = before
    else:
        del part[key]
    return copy


def unknown(value, kind, path=""):
    """Fields that a type of KServe's or of Kubernetes' Python client does not have, and values of
    another type than they have."""
    listed = re.fullmatch(r"(list\[|dict\(str, )(.*)[\])]", kind)
    if listed:
        holder = list if kind.startswith("list") else dict
        if not isinstance(value, holder):
            return [f"{path}: not a {holder.__name__}"]
        items = value.items() if holder is dict else enumerate(value)
        return [f for i, v in items for f in unknown(v, listed[2], f"{path}/{i}")]
    simple = {"str": str, "int": int, "bool": bool, "object": object}
    if kind in simple:
        return [] if isinstance(value, simple[kind]) else [f"{path}: not {kind}"]
    known = getattr(kserve.models, kind, None) or getattr(kubernetes.client, kind, None)
    if known is None:
        return []  # quantities, and names that the client has otherwise
    names = {wire: name for name, wire in known.attribute_map.items()}
    faults = []
    for key, part in value.items():
        if key not in names:
            faults.append(f"{path}/{key}: {kind} has no such field")
        else:
            faults += unknown(part, known.openapi_types[names[key]], f"{path}/{key}")
    return faults


class References(unittest.TestCase):
    """What names something else names something that is there."""

    def test_selectors(self):
        for overlay in OVERLAYS:
            part = f"overlays/{overlay}"
            deployment = one(part, "Deployment")
            labels = deployment["spec"]["template"]["metadata"]["labels"]
            for selector in (
                deployment["spec"]["selector"]["matchLabels"],
                one(part, "Service")["spec"]["selector"],
                one(part, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
                one(part, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
                *(
                    spread["labelSelector"]["matchLabels"]
                    for spread in deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
                ),
            ):
                self.assertLessEqual(selector.items(), labels.items())
            monitor = one("monitoring", "ServiceMonitor")["spec"]
            service = one(part, "Service")
            self.assertLessEqual(
                monitor["selector"]["matchLabels"].items(), service["metadata"]["labels"].items()
            )
            # Prometheus then calls the job as the alerts do.
            self.assertEqual(service["metadata"]["labels"][monitor["jobLabel"]], "xnord")

    def test_ports(self):
        for overlay in OVERLAYS:
            part = f"overlays/{overlay}"
            container = container_of(overlay)
            names = {p["name"]: p["containerPort"] for p in container["ports"]}
            (port,) = one(part, "Service")["spec"]["ports"]
            (let_in,) = one(part, "NetworkPolicy")["spec"]["ingress"]
            self.assertIn(port["targetPort"], names)
            self.assertIn(let_in["ports"][0]["port"], names)
            self.assertIn(
                one("monitoring", "ServiceMonitor")["spec"]["endpoints"][0]["port"], port["name"]
            )
            self.assertEqual(names["http"], int(environment(container)["XNORD_PORT"]))
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                self.assertIn(container[probe]["httpGet"]["port"], names)

    def test_volumes(self):
        for overlay in OVERLAYS:
            part = f"overlays/{overlay}"
            pod = one(part, "Deployment")["spec"]["template"]["spec"]
            volumes = {v["name"]: v for v in pod["volumes"]}
            for container in pod["containers"] + pod["initContainers"]:
                for mount in container["volumeMounts"]:
                    self.assertIn(mount["name"], volumes)
            claim = volumes["data"]["persistentVolumeClaim"]["claimName"]
            self.assertEqual(claim, one(part, "PersistentVolumeClaim")["metadata"]["name"])
            made = pod["initContainers"][0]["command"][2:]
            values = environment(pod["containers"][0])
            self.assertEqual(
                {values["XNORD_MODEL_REPOSITORY"], values["XNORD_WEIGHTS_DIR"]}, set(made)
            )

    def test_images(self):
        for overlay, tag in (("cpu", "cpu"), ("gpu", "cuda")):
            pod = one(f"overlays/{overlay}", "Deployment")["spec"]["template"]["spec"]
            images = {c["image"] for c in pod["containers"] + pod["initContainers"]}
            self.assertEqual(images, {f"registry.example.com/xnord:{tag}"})

    def test_scaling(self):
        for overlay in OVERLAYS:
            part = f"overlays/{overlay}"
            scaler = one(part, "HorizontalPodAutoscaler")["spec"]
            deployment = one(part, "Deployment")
            self.assertEqual(scaler["scaleTargetRef"]["name"], deployment["metadata"]["name"])
            self.assertNotIn("replicas", deployment["spec"], "the autoscaler's business")
            budget = one(part, "PodDisruptionBudget")["spec"]
            self.assertLess(budget["maxUnavailable"], scaler["minReplicas"])

    def test_service_and_runtime_of_kserve(self):
        service = kserve_object("inferenceservice")["spec"]["predictor"]
        runtime = kserve_object("servingruntime")
        model = service["model"]
        formats = runtime["spec"]["supportedModelFormats"]
        self.assertEqual(model["runtime"], runtime["metadata"]["name"])
        self.assertIn(
            (model["modelFormat"]["name"], model["modelFormat"]["version"]),
            {(f["name"], f["version"]) for f in formats},
        )
        self.assertIn(model["protocolVersion"], runtime["spec"]["protocolVersions"])
        self.assertGreaterEqual(
            service["terminationGracePeriodSeconds"],
            drain_seconds(container_of("kserve")) + MARGIN_SECONDS,
        )


class Pods(unittest.TestCase):
    """What a container is asked to be, and what the image and the daemon are."""

    def test_settings_exist(self):
        known = settings()
        self.assertGreater(len(known), 40)
        for name in CONTAINERS:
            for variable in environment(container_of(name)):
                self.assertIn(variable, known, name)
        for argument in container_of("kserve")["args"]:
            self.assertIn(re.match(r"--([a-z-]+)=", argument)[1], known.values())

    def test_user_is_the_images(self):
        user, group = re.search(r"^USER (\d+):(\d+)$", dockerfile(), re.MULTILINE).groups()
        for overlay in OVERLAYS:
            pod = one(f"overlays/{overlay}", "Deployment")["spec"]["template"]["spec"]
            context = pod["securityContext"]
            self.assertEqual(context["runAsUser"], int(user))
            self.assertEqual(context["runAsGroup"], int(group))
            self.assertEqual(context["fsGroup"], int(group))
        context = container_of("kserve")["securityContext"]
        self.assertEqual(context["runAsUser"], int(user))

    def test_nothing_is_allowed_that_need_not_be(self):
        """The profile "restricted" of Pod Security, and a root that cannot be written."""
        for overlay in OVERLAYS:
            pod = one(f"overlays/{overlay}", "Deployment")["spec"]["template"]["spec"]
            self.assertFalse(pod["automountServiceAccountToken"])
            self.assertTrue(pod["securityContext"]["runAsNonRoot"])
            self.assertEqual(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault")
            for container in pod["containers"] + pod["initContainers"]:
                self.confined(container["securityContext"])
        context = container_of("kserve")["securityContext"]
        self.confined(context)
        self.assertTrue(context["runAsNonRoot"])
        self.assertEqual(context["seccompProfile"]["type"], "RuntimeDefault")

    def confined(self, context):
        self.assertFalse(context["allowPrivilegeEscalation"])
        self.assertTrue(context["readOnlyRootFilesystem"])
        self.assertEqual(context["capabilities"], {"drop": ["ALL"]})

    def test_what_is_written_is_on_a_volume(self):
        cache = re.search(r"CUDA_CACHE_PATH=(\S+)", dockerfile())[1]
        for name in CONTAINERS:
            mounts = {m["mountPath"] for m in container_of(name)["volumeMounts"]}
            self.assertIn(str(pathlib.Path(cache).parent), mounts)

    def test_programs_are_in_the_image(self):
        """Of Debian's and Ubuntu's essential packages."""
        bases = set(re.findall(r"^FROM (\S+) AS run(?:-\w+)?$", dockerfile(), re.MULTILINE)) - {"run"}
        self.assertTrue(bases)
        for base in bases:
            self.assertRegex(base, r"debian:\d+-slim|ubuntu\d+\.\d+")
        for overlay in OVERLAYS:
            pod = one(f"overlays/{overlay}", "Deployment")["spec"]["template"]["spec"]
            self.assertEqual(pod["initContainers"][0]["command"][0], "/bin/mkdir")
        for name in CONTAINERS:
            command = container_of(name)["lifecycle"]["preStop"]["exec"]["command"]
            self.assertEqual(command[0], "/bin/sleep")

    def test_grace_fits_the_drain(self):
        for overlay in OVERLAYS:
            pod = one(f"overlays/{overlay}", "Deployment")["spec"]["template"]["spec"]
            self.assertGreaterEqual(
                pod["terminationGracePeriodSeconds"],
                drain_seconds(pod["containers"][0]) + MARGIN_SECONDS,
            )
            readiness = pod["containers"][0]["readinessProbe"]
            noticed = readiness["periodSeconds"] * readiness["failureThreshold"]
            sleep = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1])
            self.assertGreaterEqual(sleep, noticed)

    def test_memory_is_enough(self):
        for name in CONTAINERS:
            container = container_of(name)
            values = environment(container)
            held = sum(
                bytes_of(values[f"XNORD_{limit}_BYTES"])
                for limit in ("QUEUE", "MAX_MODELS", "MAX_WEIGHTS", "WEIGHTS_CACHE")
            )
            limit = bytes_of(container["resources"]["limits"]["memory"])
            self.assertLessEqual(held, 0.75 * limit, name)

    def test_gpu(self):
        limits = container_of("gpu")["resources"]["limits"]
        self.assertEqual(limits["nvidia.com/gpu"], "1")
        self.assertNotIn("nvidia.com/gpu", container_of("cpu")["resources"]["limits"])
        self.assertEqual(environment(container_of("gpu"))["XNORD_BACKEND"], "cuda")


class Real(unittest.TestCase):
    """A daemon with a container's settings, on a port of loopback and on the CPU."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="xnord-pod-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def values(self, container):
        """Its variables and the image's, with its volumes in a folder of ours."""
        image = dict(re.findall(r"\b(XNORD_\w+)=(\S+)", dockerfile().split("ENV XNORD_LISTEN")[1]))
        values = {"XNORD_LISTEN": "0.0.0.0", **image, **environment(container)}
        values = {n: v.replace("/data", str(self.folder)) for n, v in values.items()}
        return {**os.environ, **values}

    def daemon(self, name, *flags):
        container = container_of(name)
        for folder in ("models", "weights"):
            (self.folder / folder).mkdir(exist_ok=True)
        shutil.copytree(DIGITS, self.folder / "models/digits", dirs_exist_ok=True)
        daemon = Daemon(
            setting.build() / "xnord", "--backend", "cpu", *flags, env=self.values(container)
        )
        self.addCleanup(lambda: daemon.process.poll() is None and daemon.kill())
        return daemon

    def answers(self, daemon, container):
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = container[probe]["httpGet"]["path"]
            self.assertEqual(request(daemon.url + path).status, 200, path)

    def test_starts_serves_and_ends(self):
        for overlay in OVERLAYS:
            daemon = self.daemon(overlay)
            self.answers(daemon, container_of(overlay))
            self.assertEqual(request(f"{daemon.url}/v2/models/digits/ready").status, 200)
            endpoint = one("monitoring", "ServiceMonitor")["spec"]["endpoints"][0]
            page = request(daemon.url + endpoint["path"]).body.decode()
            scaler = one(f"overlays/{overlay}", "HorizontalPodAutoscaler")["spec"]
            for metric in scaler["metrics"]:
                if metric["type"] == "Pods":
                    self.assertRegex(page, rf"(?m)^{metric['pods']['metric']['name']} [\d.]+$")
            daemon.stop()

    def test_kserves_arguments(self):
        container = container_of("kserve")
        name = kserve_object("inferenceservice")["metadata"]["name"]
        shutil.copytree(DIGITS, self.folder / "mnt")
        arguments = [
            a.replace("{{.Name}}", name).replace("/mnt/models", str(self.folder / "mnt"))
            for a in container["args"]
        ]
        daemon = self.daemon("kserve", *arguments)
        self.answers(daemon, container)
        pixels = (DIGITS / "held_out.u8").read_bytes()[:64]
        body = {
            "inputs": [
                {"name": "input", "shape": [1, 8, 8, 1], "datatype": "UINT8", "data": [*pixels]}
            ]
        }
        got = request(f"{daemon.url}/v2/models/{name}/infer", json.dumps(body).encode(),
                      Content_Type="application/json")
        self.assertEqual(got.status, 200, got.body)
        daemon.stop()

    def test_service_links_do_no_harm(self):
        """What Kubernetes adds to a pod beside a Service named xnord, where it is not told off."""
        links = {
            "XNORD_PORT": "tcp://10.0.0.1:8080",
            "XNORD_SERVICE_HOST": "10.0.0.1",
            "XNORD_SERVICE_PORT": "8080",
            "XNORD_SERVICE_PORT_HTTP": "8080",
            "XNORD_PORT_8080_TCP": "tcp://10.0.0.1:8080",
            "XNORD_PORT_8080_TCP_ADDR": "10.0.0.1",
        }
        got = subprocess.run(
            [setting.build() / "xnord", "--check-config", "--backend", "cpu"],
            env={**os.environ, **links}, capture_output=True, text=True, timeout=60,
        )
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertRegex(got.stdout, r"(?m)^port = 8080$")

    def test_probes_during_the_drain(self):
        """Alive, so that nobody kills it, and not ready, while what it accepted is finished."""
        daemon = self.daemon("cpu", "--body-min-rate", "0")
        head = (
            "POST /conv HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            "Content-Length: 2\r\n\r\n{"
        )
        held = socket.create_connection(("127.0.0.1", daemon.port))
        self.addCleanup(held.close)
        held.sendall(head.encode())
        daemon.wait_until(
            lambda: b"xnord_inflight_requests 1" in request(f"{daemon.url}/metrics").body,
            "it did not take the request",
        )
        daemon.send(signal.SIGTERM)
        daemon.wait_until(
            lambda: request(f"{daemon.url}/v2/health/ready").status == 503, "it is still ready"
        )
        self.assertEqual(request(f"{daemon.url}/v2/health/live").status, 200)
        began = time.monotonic()
        held.sendall(b"}")
        self.assertTrue(held.recv(12).startswith(b"HTTP/1.1 4"))
        self.assertEqual(daemon.ended()[0], 0)
        self.assertLess(time.monotonic() - began, STOP_SECONDS + MARGIN_SECONDS)


if __name__ == "__main__":
    unittest.main()
