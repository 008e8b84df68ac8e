"""GPUs and energy in /metrics of `fathom serve`, read from a libnvidia-ml.so.1 that the test controls.

usage: serve_devices_test.py FATHOM FAKE_NVML_FOLDER FAKE_NVML_OLD_FOLDER
"""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

from serve_process import CHAT, DEADLINE_S, Server, endless, greedy, until

FATHOM, NVML, OLD_NVML = (os.path.abspath(sys.argv.pop(1)) for _ in range(3))
UUIDS = [f"GPU-10000000-0000-0000-0000-00000000000{number}" for number in range(2)]


class Watching:
    """A server and the state of its NVML."""

    def __init__(self, state="ok", *flags, library=NVML, gpus="all"):
        self.folder = tempfile.TemporaryDirectory()
        self.file = pathlib.Path(self.folder.name) / "state"
        self.set(state)
        self.server = Server(FATHOM, "--gpu-metrics", gpus, *flags,
                             environment={"LD_LIBRARY_PATH": library, "FAKE_NVML_STATE": str(self.file)})

    def set(self, state):
        new = self.file.with_suffix(".new")
        new.write_text(state)
        new.replace(self.file)  # whole at any moment

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.__exit__()
        self.folder.cleanup()

    def gpus(self):
        """[{name: value}] of the GPUs' own series, in the order of UUIDS."""
        found = [{} for _ in UUIDS]
        for name, series in self.server.metrics().items():
            for labels, value in series.items():
                labels = dict(labels)
                if labels.get("UUID") in UUIDS and "reason" not in labels:
                    found[UUIDS.index(labels["UUID"])][name] = value
        return found


class Devices(unittest.TestCase):
    EXPECTED = {"DCGM_FI_DEV_GPU_UTIL": 93, "DCGM_FI_DEV_MEM_COPY_UTIL": 41, "DCGM_FI_DEV_FB_TOTAL": 80 * 1024,
                "DCGM_FI_DEV_FB_FREE": 59 * 1024, "DCGM_FI_DEV_FB_USED": 20 * 1024, "DCGM_FI_DEV_POWER_USAGE": 350,
                "DCGM_FI_DEV_GPU_TEMP": 55, "DCGM_FI_DEV_SM_CLOCK": 1755, "DCGM_FI_DEV_MEM_CLOCK": 2619,
                "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 4, "fathom_gpu_up": 1}
    COUNTERS = {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "fathom_gpu_nvlink_sent_bytes_total",
                "fathom_gpu_nvlink_received_bytes_total"}

    def test_all_that_the_driver_tells(self):
        with Watching() as watching:
            first, second = watching.gpus(), watching.gpus()
            for number, gpu in enumerate(first):
                counted = {name: gpu.pop(name) for name in self.COUNTERS}
                self.assertEqual(gpu, self.EXPECTED)
                for name, value in counted.items():
                    self.assertGreater(second[number][name], value, f"{name} is read anew for each scrape")
            metrics = watching.server.metrics()
            labels = {frozenset({("gpu", str(number)), ("UUID", UUIDS[number]), ("device", f"nvidia{number}"),
                                 ("modelName", "Made-up GPU"), ("model_name", "tiny"), ("engine", "0")})
                      for number in range(2)}
            self.assertEqual(set(metrics["DCGM_FI_DEV_POWER_USAGE"]), labels)
            now = {dict(of)["reason"] for of, value in metrics["fathom_gpu_clock_event"].items() if value}
            self.assertEqual(now, {"SW power cap"})
            energy = {(dict(of)["kind"], dict(of)["device"]): value
                      for of, value in metrics["fathom_energy_joules_total"].items()}
            for uuid in UUIDS:
                self.assertGreater(energy["gpu", uuid], 5000)  # J, from mJ
            self.assertEqual(sum(metrics["fathom_gpu_scrapes_late_total"].values()), 0)

    def test_an_old_driver_tells_less(self):
        with Watching(library=OLD_NVML) as watching:
            for gpu in watching.gpus():
                self.assertEqual(gpu, {**self.EXPECTED, "DCGM_FI_DEV_FB_USED": 21 * 1024,  # with what is reserved
                                       "DCGM_FI_DEV_POWER_USAGE": 345.6, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 0x24})
            energy = watching.server.metrics().get("fathom_energy_joules_total", {})
            self.assertNotIn("gpu", {dict(of)["kind"] for of in energy})

    def test_sensors_that_are_refused_have_no_series(self):
        with Watching("unsupported") as watching:
            self.assertEqual(watching.gpus(), [{"fathom_gpu_up": 0}] * 2)
            watching.set("ok")
            self.assertEqual(watching.gpus()[0]["DCGM_FI_DEV_POWER_USAGE"], 350)

    def test_a_lost_gpu(self):
        with Watching() as watching:
            self.assertEqual(watching.gpus()[1]["fathom_gpu_up"], 1)
            watching.set("lost")
            there, lost = watching.gpus()
            self.assertEqual(lost, {"fathom_gpu_up": 0})
            self.assertEqual(there["fathom_gpu_up"], 1)
            self.assertEqual(there["DCGM_FI_DEV_POWER_USAGE"], 350)
            self.assertEqual(watching.server.get("/health").status, 200)

    def test_a_driver_that_does_not_start(self):
        with Watching("broken") as watching:
            self.assertEqual(watching.gpus(), [{}, {}])
            watching.server.said("/metrics tells less of GPUs: nvmlInit: Driver Not Loaded")
            self.assertIn("6912", watching.server.ask(CHAT, **greedy())["choices"][0]["message"]["content"])

    def test_slow_queries(self):
        # 10 queries a GPU of 10 ms each are within what a scrape waits for, of 300 ms are not.
        with Watching("slow 10") as watching:
            self.assertEqual(watching.gpus()[0]["fathom_gpu_up"], 1)
            watching.set("slow 300")
            begin = time.monotonic()
            self.assertEqual(watching.gpus(), [{}, {}])
            self.assertLess(time.monotonic() - begin, 5)
            self.assertGreaterEqual(watching.server.metric("fathom_gpu_scrapes_late_total"), 1)
            watching.set("ok")
            until(lambda: watching.gpus()[0].get("fathom_gpu_up") == 1, "GPUs are back")

    def test_a_hanging_driver_delays_nobody(self):
        with Watching("ok", "--io-threads", 1, "--max-model-len", 131072, "--kv-tokens", 262144) as watching:
            watching.gpus()
            watching.set("hang")
            stream = watching.server.stream(CHAT, **endless())
            next(stream)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                scrapes = [pool.submit(watching.server.metrics) for _ in range(40)]
                gaps, last = [], time.monotonic()
                while not all(scrape.done() for scrape in scrapes):
                    next(stream)
                    now = time.monotonic()
                    gaps.append(now - last)
                    last = now
            for scrape in scrapes:  # all other series are there
                metrics = scrape.result()
                self.assertIn("vllm:num_requests_running", metrics)
                self.assertNotIn("fathom_gpu_up", metrics)
            # A thread that read NVML in the scrape would never write again; there is one thread for connections.
            print(f"{len(gaps)} tokens meanwhile, the longest wait {1000 * max(gaps, default=0):.0f} ms")
            self.assertEqual(sum(scrapes[-1].result()["vllm:num_requests_running"].values()), 1)
            begin = time.monotonic()
            watching.server.metrics()
            print(f"a scrape while NVML hangs: {1000 * (time.monotonic() - begin):.1f} ms")
            stream.close()
            watching.server.signal()  # and it does not keep the process from ending
            self.assertEqual(watching.server.wait(), 0)

    def test_only_the_engines_gpus_by_default(self):
        for gpus in ("engine", "none"):  # this engine runs on the CPU
            with Watching(gpus=gpus) as watching:
                self.assertEqual(watching.gpus(), [{}, {}])
                self.assertNotIn("fathom_gpu_scrapes_late_total", watching.server.metrics())

    def test_no_library(self):
        if subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout.find("libnvidia-ml") >= 0:
            self.skipTest("this machine has an NVIDIA driver")
        with Server(FATHOM, "--gpu-metrics", "all") as server:
            server.said("/metrics tells less of GPUs: libnvidia-ml.so.1 does not load")
            self.assertNotIn("fathom_gpu_up", server.metrics())

    def test_an_unknown_word(self):
        result = subprocess.run([FATHOM, "serve", "--gpu-metrics", "some"], capture_output=True, text=True, timeout=DEADLINE_S,
                                check=False)
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertIn("--gpu-metrics", result.stderr)


unittest.main(verbosity=2)
