"""What lies in deploy/, against the program: the series of the dashboard.

usage: deploy_test.py FATHOM FAKE_NVML_FOLDER
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

from promql import Expression, PromqlError
from serve_process import CHAT, DEADLINE_S, Server, greedy

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
    return float(re.search(rf"^ *{flag} .*=(\d+) \(Env:", told, re.MULTILINE).group(1))


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


unittest.main(verbosity=2)
