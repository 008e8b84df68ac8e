"""What lies in deploy/, against the program: the series of the dashboard, the steps of the container recipe, the probes
and times of the Kubernetes manifest.

usage: deploy_test.py FATHOM FAKE_NVML_FOLDER
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import yaml

from promql import Expression, PromqlError
from serve_process import BUNDLED, CHAT, DEADLINE_S, Server, endless, greedy

FATHOM, NVML = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
ROOT = pathlib.Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"

# Series that only a machine with such a device exports; all others must come from any server.
DEVICES = {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_POWER_USAGE",
           "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK", "fathom_gpu_clock_event", "fathom_gpu_up",
           "fathom_gpu_scrapes_late_total", "fathom_gpu_nvlink_sent_bytes_total", "fathom_gpu_nvlink_received_bytes_total",
           "fathom_energy_joules_total"}
ADDED_BY_PROMETHEUS = {"instance", "job"}


def panels():
    return [panel for panel in json.loads((DEPLOY / "grafana/fathom.json").read_text())["panels"] if panel["type"] != "row"]


def expressions():
    """[(panel's title, expression with Grafana's variables replaced, legend)]"""
    return [(panel["title"], re.sub(r"\$(model_name|instance)\b", ".*", target["expr"].replace("$__rate_interval", "5m")),
             target["legendFormat"]) for panel in panels() for target in panel["targets"]]


def default_of(flag):
    told = subprocess.run([FATHOM, "serve", "--help"], capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout
    return float(re.search(rf"^ *{flag} .*=(\d+)\b", told, re.MULTILINE).group(1))


class Dashboard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.NamedTemporaryFile("w", suffix="state") as state:
            state.write("ok")
            state.flush()
            with Server(FATHOM, "--gpu-metrics", "all",
                        environment={"LD_LIBRARY_PATH": NVML, "FAKE_NVML_STATE": state.name}) as server:
                server.ask(CHAT, **greedy())
                cls.with_gpus = server.metrics()
        with Server(FATHOM) as server:
            server.ask(CHAT, **greedy())
            cls.without = server.metrics()

    def labels(self, name):
        """Labels that every series of this name has in Prometheus."""
        series = self.with_gpus[name]
        return set.intersection(*({label for label, _ in labels} for labels in series)) | ADDED_BY_PROMETHEUS

    def test_every_series_is_exported(self):
        used = set()
        for title, text, _ in expressions():
            parsed = Expression(text)
            self.assertTrue(parsed.selectors, title)
            for selector in parsed.selectors:
                used.add(selector.metric)
                self.assertIn(selector.metric, self.with_gpus, f"{title}: a running server does not export it")
                for label, _, _ in selector.matchers:
                    self.assertIn(label, self.labels(selector.metric), f"{title}: {selector.metric}")
            for labels, selectors in parsed.kept:
                for selector in selectors:
                    self.assertLessEqual(set(labels), self.labels(selector.metric), f"{title}: {selector.metric}")
        # Energy is also a CPU's, where RAPL is readable.
        self.assertEqual(used - set(self.without) - {"fathom_energy_joules_total"}, DEVICES - {"fathom_energy_joules_total"})
        self.assertLessEqual({"fathom_energy_joules_total"}, used)

    def test_a_counter_is_shown_as_a_rate(self):
        for title, text, _ in expressions():
            for found in re.finditer(r"[\w:]+_(?:total|sum|count|bucket)\{", text):
                self.assertTrue(text[:found.start()].endswith("rate("), f"{title}: {found.group()} only grows: show its rate")

    def test_legends_name_labels_of_the_result(self):
        for title, text, legend in expressions():
            parsed = Expression(text)
            have = set(parsed.labels) if parsed.labels is not None else self.labels(parsed.selectors[0].metric)
            for label in re.findall(r"\{\{(\w+)\}\}", legend):
                self.assertIn(label, have, f"{title}: {legend}")

    def test_panels_are_whole(self):
        dashboard = json.loads((DEPLOY / "grafana/fathom.json").read_text())
        self.assertEqual({variable["name"] for variable in dashboard["templating"]["list"]}, {"datasource", "model_name", "instance"})
        ids = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        taken = set()
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(place["x"] + place["w"], 24)
            taken |= cells
        for panel in panels():
            self.assertTrue(panel["title"] and panel["description"].endswith("."), panel["title"])
            self.assertEqual({target["datasource"]["uid"] for target in panel["targets"]}, {"${datasource}"})
            references = [target["refId"] for target in panel["targets"]]
            self.assertEqual(len(references), len(set(references)))
            for variable in re.findall(r"\$(\w+)", " ".join(target["expr"] for target in panel["targets"])):
                self.assertIn(variable, {"model_name", "instance", "__rate_interval"})

    def test_the_reader_is_strict(self):
        for wrong in ("rate(a)", "sum(a[5m])", "a[5m]", "sum(rate(a[5m])", "rate(a[5x])", "quantile_of(a)", "a{b=c}", "a b", "a +",
                      "histogram_quantile(0.9, a)", "histogram_quantile(a, sum by (le) (a))", "a{b=\"c\"", "sum by le (a)",
                      "sum by (x) (a) / sum by (y) (a)", "1 or a", "$x", "a{b=~\"(\"}", ""):
            with self.assertRaises((PromqlError, re.error), msg=wrong):
                Expression(wrong)

    def test_prometheus_reads_them_too(self):
        promtool = shutil.which("promtool")
        if not promtool:
            self.skipTest("promtool is not installed (Debian's package prometheus)")
        rules = {"groups": [{"name": "dashboard", "rules": [{"record": f"panel:{number}", "expr": text}
                                                            for number, (_, text, _) in enumerate(expressions())]}]}
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            yaml.safe_dump(rules, file)
            file.flush()
            for command in (["check", "rules", file.name], ["check", "config", str(DEPLOY / "prometheus.yml")]):
                result = subprocess.run([promtool, *command], capture_output=True, text=True, check=False, timeout=DEADLINE_S)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_prometheus_yml(self):
        config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
        (job,) = config["scrape_configs"]
        (target,) = job["static_configs"][0]["targets"]
        self.assertEqual(int(target.split(":")[1]), int(default_of("--port")))
        self.assertNotIn("metrics_path", job)  # the default, /metrics, is ours


class Container(unittest.TestCase):
    """deploy/Dockerfile, as far as no container is needed."""

    @classmethod
    def setUpClass(cls):
        text = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE))
        cls.steps = [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in text.splitlines() if line.strip()]
        last = max(number for number, (word, _) in enumerate(cls.steps) if word == "FROM")
        cls.final = dict(cls.steps[last:])

    def test_stages(self):
        known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
        stages, defaults = set(), {}
        for word, rest in self.steps:
            self.assertIn(word, known)
            if word == "ARG":
                name, _, value = rest.partition("=")
                defaults[name] = value
            if word != "FROM":
                continue
            image, _, name = rest.partition(" AS ")
            for variant in ("cpu", "cuda"):
                resolved = re.sub(r"\$\{(\w+)\}", lambda of: {**defaults, "VARIANT": variant}[of.group(1)], image)
                self.assertTrue(resolved in stages or resolved == "debian:bookworm-slim", resolved)
            stages.add(name)
        self.assertEqual({"toolchain-cpu", "toolchain-cuda", "build", ""}, stages)

    def test_what_is_copied_exists_and_is_not_ignored(self):
        allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
        for path in allowed:
            self.assertTrue((ROOT / path).exists(), path)
        for word, rest in self.steps:
            if word == "COPY" and not rest.startswith("--from"):
                for source in rest.split()[:-1]:
                    self.assertTrue((ROOT / source).exists(), source)
                    if source != ".":
                        self.assertTrue(source in allowed or source.split("/")[0] in allowed, source)
        # What CMake reads at the root of the tree.
        for path in re.findall(r"(?:add_subdirectory|include)\((\w+)/?", (ROOT / "CMakeLists.txt").read_text()):
            if (ROOT / path).is_dir() and path != "tests":
                self.assertIn(path, allowed)

    def test_an_unprivileged_user(self):
        self.assertRegex(self.final["USER"], r"^[1-9]\d{3,}$")  # a number: runAsNonRoot cannot check a name
        self.assertIn(f"--uid {self.final['USER']} ", " ".join(rest for word, rest in self.steps if word == "RUN"))

    def test_it_starts_and_its_health_check_passes(self):
        # No shell in between, which as PID 1 would keep SIGTERM to itself.
        self.assertEqual(json.loads(self.final["ENTRYPOINT"]), ["fathom"])
        command = json.loads(self.final["CMD"])
        self.assertEqual(command[0], "serve")
        flags = command[1:]
        where = flags.index("--model")
        self.assertEqual(flags[where + 1], self.final["VOLUME"])
        self.assertEqual(int(self.final["EXPOSE"]), int(default_of("--port")))
        check = json.loads(self.final["HEALTHCHECK"].partition("CMD ")[2])
        self.assertEqual(check[-1], f"http://127.0.0.1:{self.final['EXPOSE']}/health")
        if not shutil.which("curl"):
            self.skipTest("curl is not installed")
        flags[where:where + 2] = []
        with Server(FATHOM, *flags, listening="0.0.0.0") as server:
            check[-1] = f"{server.url}/health"
            self.assertEqual(subprocess.run(check, check=False, timeout=DEADLINE_S).returncode, 0)
            server.process.send_signal(signal.SIGSTOP)  # hangs: the check must end by itself
            check[1:1] = ["--max-time", "1"]
            self.assertNotEqual(subprocess.run(check, check=False, timeout=DEADLINE_S).returncode, 0)
            server.process.send_signal(signal.SIGCONT)


class Kubernetes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.deployment, cls.service = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
        cls.pod = cls.deployment["spec"]["template"]
        (cls.container,) = cls.pod["spec"]["containers"]

    def flag(self, name):
        values = [argument.partition("=")[2] for argument in self.container["args"] if argument.startswith(name + "=")]
        return values[0] if values else None

    def test_kinds_and_labels(self):
        self.assertEqual([(part["apiVersion"], part["kind"]) for part in (self.deployment, self.service)],
                         [("apps/v1", "Deployment"), ("v1", "Service")])
        labels = self.pod["metadata"]["labels"].items()
        self.assertLessEqual(self.deployment["spec"]["selector"]["matchLabels"].items(), labels)
        self.assertLessEqual(self.service["spec"]["selector"].items(), labels)
        (port,) = self.container["ports"]
        self.assertEqual(port["containerPort"], int(self.flag("--port")))
        self.assertEqual(self.service["spec"]["ports"][0]["targetPort"], port["name"])
        annotations = self.pod["metadata"]["annotations"]
        self.assertEqual((annotations["prometheus.io/port"], annotations["prometheus.io/path"]), (self.flag("--port"), "/metrics"))

    def test_grace_is_longer_than_the_drain(self):
        before = self.container["lifecycle"]["preStop"]["exec"]["command"]
        self.assertEqual(before[0], "sleep")
        drain = float(self.flag("--drain-timeout") or default_of("--drain-timeout"))
        self.assertGreaterEqual(self.pod["spec"]["terminationGracePeriodSeconds"], float(before[1]) + drain + 5)

    def test_the_gpu_is_a_limit(self):
        self.assertEqual(self.container["resources"]["limits"]["nvidia.com/gpu"], 1)
        self.assertEqual(self.flag("--device"), "cuda")

    def test_it_runs_as_the_images_user_with_nothing_to_write(self):
        security = self.pod["spec"]["securityContext"]
        user = re.search(r"^USER (\d+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE).group(1)
        self.assertEqual((security["runAsNonRoot"], security["runAsUser"]), (True, int(user)))
        self.assertTrue(self.container["securityContext"]["readOnlyRootFilesystem"])
        (mount,) = self.container["volumeMounts"]
        (volume,) = self.pod["spec"]["volumes"]
        self.assertEqual((mount["name"], mount["mountPath"]), (volume["name"], self.flag("--model")))

    def test_arguments_and_probes_on_a_running_server(self):
        """Those of the manifest, with another model and port and without a GPU."""
        arguments = [argument for argument in self.container["args"][1:]
                     if argument.partition("=")[0] not in ("--model", "--port", "--device")]
        self.assertEqual(self.container["args"][0], "serve")
        paths = {name: self.container[name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
        for name in paths:
            self.assertEqual(self.container[name]["httpGet"]["port"], self.container["ports"][0]["name"])
        # A Service named fathom sets these in its pods.
        links = {"FATHOM_PORT": "tcp://10.43.0.7:80", "FATHOM_SERVICE_HOST": "10.43.0.7", "FATHOM_SERVICE_PORT": "80",
                 "FATHOM_PORT_80_TCP": "tcp://10.43.0.7:80", "FATHOM_SERVICE_PORT_HTTP": "80"}
        with tempfile.TemporaryDirectory() as folder, Server(FATHOM, *arguments, "--max-model-len", 131072, "--kv-tokens", 262144,
                                                             listening="0.0.0.0", environment={**links, "HOME": folder}) as server:
            for name, path in paths.items():
                self.assertEqual(server.get(path).status, 200, name)
            self.assertEqual(server.get("/v1/models").json()["data"][0]["id"], self.flag("--served-model-name"))
            stream = server.stream(CHAT, **endless())
            next(stream)
            server.signal()
            server.said("draining: 1 request")
            with self.assertRaises(OSError):  # not ready: it refuses connections
                server.get(paths["readinessProbe"])
            next(stream)  # while it still answers
            stream.close()
            self.assertEqual(server.wait(), 0)
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])  # it writes nothing

    def test_the_startup_probe_fails_until_the_model_is_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "model"
            shutil.copytree(BUNDLED, model)
            os.remove(model / "tokenizer.json")
            os.mkfifo(model / "tokenizer.json")  # nobody writes: loading does not end
            with Server(FATHOM, model=model, wait=False) as server:
                for name, status in (("startupProbe", 503), ("readinessProbe", 503)):
                    self.assertEqual(server.get(self.container[name]["httpGet"]["path"]).status, status, name)


unittest.main(verbosity=2)
