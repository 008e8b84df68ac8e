"""The command line: exit codes, streams, files, and the state after a kill.

usage: cli_test.py FATHOM
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

FATHOM = os.path.abspath(sys.argv.pop(1))
ROOT = pathlib.Path(__file__).resolve().parent.parent


class Cli(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.artifacts = os.path.join(self.folder.name, "artifacts")
        # Keep the measured ceilings of this machine, but write the history to a folder of the test.
        self.env = dict(os.environ, FATHOM_HISTORY=os.path.join(self.folder.name, "history.sqlite"))

    def tearDown(self):
        self.folder.cleanup()

    def fathom(self, *args, env=None):
        return subprocess.run([FATHOM, *args], capture_output=True, text=True, cwd=self.folder.name,
                              env=dict(self.env, **(env or {})), timeout=280)

    def run_once(self, target="ch08:accumulators", *args):
        result = self.fathom("run", target, "--quick", "--repeat", "20", "--artifacts-dir", self.artifacts, *args)
        runs = sorted(p for p in pathlib.Path(self.artifacts).iterdir() if p.is_dir())
        return result, runs[-1]

    def test_list_names_experiments_on_stdout_only(self):
        result = self.fathom("list")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("ch07/transpose_cpu", result.stdout)
        self.assertEqual(result.stderr, "")
        listing = json.loads(self.fathom("list", "--json").stdout)
        self.assertTrue(listing["schema"].startswith("fathom."))

    def test_a_misspelt_target_names_the_nearest(self):
        result = self.fathom("run", "ch07:transpos_cpu")
        self.assertEqual(result.returncode, 5)
        self.assertEqual(result.stdout, "")
        self.assertIn("transpose_cpu", result.stderr)

    def test_diagnose_says_what_limits_a_record(self):
        record = ROOT / "results/h100-80gb-hbm3/ch07/l2_persistence.json"
        table = self.fathom("diagnose", str(record))
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertIn("excess_traffic", table.stdout)
        self.assertIn("machine h100-80gb-hbm3", table.stderr)
        one = self.fathom("diagnose", str(record), "ch07/l2_persistence/unmanaged?table_mib=16",
                          "--results-dir", str(ROOT / "results"))
        self.assertEqual(one.returncode, 0, one.stderr)
        self.assertRegex(one.stdout, "limited by DRAM: DRAM moves 9[0-9.]* %")
        self.assertRegex(one.stdout, r"1 excess_traffic \(sure\)")
        # The cure with the gain that the record of the same machine has.
        self.assertIn("ch07/l2_persistence/evict_first (1.11", one.stdout)
        self.assertRegex(" ".join(one.stdout.split()), r"not tried, for want of:.*waves_per_multiprocessor")
        self.assertLess(len(one.stdout.splitlines()), 40)
        self.assertLessEqual(max(map(len, one.stdout.splitlines())), 100)
        whole = json.loads(self.fathom("diagnose", str(record), "--json").stdout)
        self.assertEqual(whole["schema"], "fathom.diagnosis/1")
        first = next(r for r in whole["results"] if r["id"].startswith("ch07/l2_persistence/unmanaged?"))
        self.assertEqual(first["findings"][0]["cause"], "excess_traffic")
        self.assertGreater(first["findings"][0]["evidence"][0]["value"], 1.2)

    def test_diagnose_of_a_record_without_counters_names_what_takes_them(self):
        result = self.fathom("diagnose", "ch06/bank_conflicts/plain?tiles=16384", "--machine", "h100-80gb-hbm3",
                             "--results-dir", str(ROOT / "results"), "--artifacts-dir", self.artifacts)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("without counters nobody knows", result.stdout)
        self.assertIn("fathom run ch06/bank_conflicts/plain --profile --ncu-metric-set deep_dive",
                      " ".join(result.stdout.split()))
        self.assertNotIn("bank_conflicts (", result.stdout)
        rules = self.fathom("diagnose", "--rules")
        self.assertEqual(rules.returncode, 0, rules.stderr)
        self.assertIn("analysis-004", rules.stdout)
        nowhere = self.fathom("diagnose", "ch06:bank_conflicts", "--machine", "nowhere", "--results-dir",
                              str(ROOT / "results"))
        self.assertEqual(nowhere.returncode, 5)
        self.assertIn("nowhere", nowhere.stderr)

    def test_stats_sums_a_trace(self):
        trace = os.path.join(self.folder.name, "trace_n=1.json")
        launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1, "dur": 2, "args": {"correlation": 7}}
        load = {"cat": "cuda_driver", "name": "cuLibraryLoadData", "ts": 4, "dur": 6}
        kernel = {"cat": "kernel", "name": "gemm", "pid": 0, "ts": 5, "dur": 9, "args": {"correlation": 7}}
        step = {"cat": "user_annotation", "name": "step", "ts": 0, "dur": 20}
        with open(trace, "w") as file:
            json.dump({"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, **event}
                                       for event in (launch, load, kernel, step)]}, file)
        text = self.fathom("stats", trace)
        self.assertEqual(text.returncode, 0, text.stderr)
        self.assertRegex(text.stdout, r"cuLibraryLoadData\s+75.0 %\s+6.00 µs\s+1")
        self.assertRegex(text.stdout, "75.0 % of the time in API calls is loading")
        summary = json.loads(self.fathom("stats", self.folder.name, "--json").stdout)
        self.assertEqual(summary["schema"], "fathom.api_summary/1")
        self.assertEqual(summary["kernels"][0]["range"], "step")
        self.assertIn("total_ns", self.fathom("stats", trace, "--csv").stdout)
        empty = os.path.join(self.folder.name, "empty")
        os.mkdir(empty)
        missing = self.fathom("stats", empty)
        self.assertEqual(missing.returncode, 5)
        self.assertIn("no trace", missing.stderr)

    def test_profile_choices_are_checked_before_anything_runs(self):
        for flags, said in ((["--profile", "--ncu-section", "WarpStateStat"], "did you mean WarpStateStats?"),
                            (["--profile", "--ncu-kernel", "a("], "is no regular expression"),
                            (["--ncu-kernel", "a"], "add --profile")):
            result = self.fathom("run", "ch08:accumulators", *flags, "--artifacts-dir", self.artifacts)
            self.assertEqual(result.returncode, 5, flags)
            self.assertIn(said, result.stderr)
            self.assertFalse(os.path.exists(self.artifacts), flags)
        counters = self.fathom("run", "--query-metrics", "--section", "WarpStateStats")
        self.assertEqual(counters.returncode, 0, counters.stderr)
        self.assertIn("stall_barrier", counters.stdout)
        self.assertNotIn("dram_bytes_read", counters.stdout)

    def test_a_misspelt_flag_and_verb_are_usage_errors(self):
        for args in (["run", "--quik"], ["rn"], ["run", "-a", "n"], ["run", "ch08:accumulators", "-a", "m=3"]):
            result = self.fathom(*args)
            self.assertEqual(result.returncode, 5, args)
            self.assertNotEqual(result.stderr, "", args)

    def test_an_axis_may_choose_variants_and_experiments(self):
        chosen = self.fathom("verify", "ch09:matmul_cpu", "ch02:stride", "-a", "variant=tiled", "-a", "n=64")
        self.assertEqual(chosen.returncode, 0, chosen.stderr)
        self.assertIn("tiled", chosen.stdout)
        self.assertNotIn("packed", chosen.stdout)
        self.assertNotIn("row_order", chosen.stdout)
        left_out = self.fathom("verify", "ch08:accumulators", "ch02:pointer_chase", "-a", "n=64")
        self.assertIn("ch02/pointer_chase is left out: it has no such axis", left_out.stderr)
        wrong = self.fathom("run", "ch09:matmul_cpu", "-a", "variant=tilde")
        self.assertEqual(wrong.returncode, 5)
        self.assertRegex(wrong.stderr, "variant=tilde: no chosen experiment has it; there are .*tiled")
        # One rung of a lab's ladder; what this machine lacks is said at once, by type.
        rung = self.fathom("run", "labs/matmul", "-a", "variant=cluster", "-a", "size=4096", "--artifacts-dir",
                           self.artifacts, env={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(rung.returncode, 4, rung.stderr)
        self.assertIn("needs_cuda", rung.stdout)
        self.assertNotIn("ping_pong", rung.stdout)

    def test_an_impossible_axis_value_is_a_usage_error_and_starts_nothing(self):
        for target, axis, allowed in (("ch08:accumulators", "n=-5", "a whole number of at least"),
                                      ("ch08:accumulators", "n=[8,big]", "a whole number of at least"),
                                      ("ch05:parallel_decompression", "compression=lzma", "zstd or lz4")):
            result = self.fathom("run", target, "-a", axis, "--artifacts-dir", self.artifacts)
            self.assertEqual(result.returncode, 5, axis)
            name, value = axis.split("=")
            for said in (f"axis '{name}'", value.strip("[]").split(",")[-1], allowed):
                self.assertIn(said, result.stderr)
        self.assertFalse(pathlib.Path(self.artifacts).exists())

    def test_run_writes_what_it_says(self):
        result, run = self.run_once("ch08:accumulators", "--json=out.json", "--csv=out.csv", "--md=out.md")
        self.assertEqual(result.returncode, 0, result.stderr)
        for name in ("results.json", "manifest.json", "report.html"):
            self.assertTrue((run / name).is_file(), name)
        record = json.loads((run / "results.json").read_text())
        self.assertEqual(record["schema"], "fathom.results/1")
        point = record["experiments"][0]["points"][0]
        self.assertEqual(record["experiments"][0]["id"], "ch08/accumulators")
        self.assertGreaterEqual(point["rounds"], 20)
        for variant in point["variants"]:
            if variant["status"] != "ok":
                continue
            self.assertGreaterEqual(variant["checked"]["timed_calls"], 1)
            self.assertEqual(len(variant["samples_ns"]), point["rounds"])
            time_ns = variant["time_ns"]
            self.assertLessEqual(time_ns["min"], time_ns["median"])
            self.assertTrue((run / "ch08" / "accumulators" / variant["id"] / "metrics.json").is_file())
        json.loads(pathlib.Path(self.folder.name, "out.json").read_text())
        self.assertIn("ch08/accumulators", pathlib.Path(self.folder.name, "out.csv").read_text())
        self.assertIn("|", pathlib.Path(self.folder.name, "out.md").read_text())
        self.assertIn("report.html", result.stdout + result.stderr)

    def test_metrics_of_served_models_become_a_page_of_bars(self):
        run = pathlib.Path(self.folder.name, "run")
        for variant, kind, ttft in (("all", "optimized", 2e6), ("plain", "baseline", 8e6)):
            folder = run / "ch15" / "engine" / variant
            folder.mkdir(parents=True)
            metrics = {"ttft_p50_ns": {"value": ttft, "better": "lower"}, "memory_bytes": {"value": 64e6, "better": "lower"},
                       "output_tokens_per_s": {"value": 1e3, "better": "higher"}, "steps": {"value": 7, "better": "lower"},
                       "expert_load_variance": {"value": 0.5, "better": "lower"}}
            (folder / "metrics.json").write_text(json.dumps(
                {"experiment": "ch15/engine", "variant": variant, "points": [{"at": {"requests": 40}, "kind": kind, "metrics": metrics}]}))
        result = self.fathom("report", "--metrics", str(run), "--page", "bars.html")
        self.assertEqual(result.returncode, 0, result.stderr)
        page = pathlib.Path(self.folder.name, "bars.html").read_text()
        places = [page.index(words) for words in ("requests=40", "ttft_p50_ns", "plain", "-75.0 %", "output_tokens_per_s", "memory_bytes", "64.0 MB",
                                               "expert_load_variance")]
        self.assertEqual(places, sorted(places))
        self.assertNotIn("steps", page)
        self.assertEqual(self.fathom("report", "--page", "bars.html").returncode, 5)
        for variant in ("all", "plain"):
            path = run / "ch15" / "engine" / variant / "metrics.json"
            path.write_text(json.dumps({"experiment": "ch15/engine", "variant": variant, "points": []}))
        nothing = self.fathom("report", "--metrics", str(run), "--page", "bars.html")
        self.assertEqual(nothing.returncode, 5)
        self.assertIn("ch15:monolithic_engine", nothing.stderr.replace("\n", " "))

    def test_compile_explains_programs_and_files(self):
        explained = self.fathom("compile", "explain", "mlp", "--at", "T=64")
        self.assertEqual(explained.returncode, 0, explained.stderr)
        self.assertIn("in 3 launches", explained.stdout)
        self.assertRegex(explained.stdout, "at T = 64: [0-9.]+ kB of memory instead of [0-9.]+ MB")
        for rule in ("R2", "R3", "Not fused", "a launch has one matmul"):
            self.assertIn(rule, explained.stdout)
        # What is shown is a file that is read back as the same program.
        shown = self.fathom("compile", "show", "mlp", "--stage", "captured")
        self.assertRegex(shown.stdout, r"matmul .* @ programs.cpp:\d+")
        path = pathlib.Path(self.folder.name, "copy.ir")
        path.write_text(shown.stdout)
        self.assertEqual(self.fathom("compile", "show", "copy.ir", "--stage", "captured").stdout, shown.stdout)
        self.assertEqual(self.fathom("compile", "explain", "copy.ir", "--at", "T=64").stdout, explained.stdout)

        path.write_text('symbol T 1..8\n%0 = input "x" fp32[T, 6]\n%1 = neg %0 fp32[6]\noutput "y" %1\n')
        wrongs = {("explain", "mpl"): "did you mean 'mlp'", ("show", "gone.ir"): "gone.ir cannot be read",
                  ("explain", "copy.ir"): r"%1 neg \(copy.ir:3\): its shape is \[T, 6\], not \[6\]",
                  ("explain", "mlp", "--at", "U=3"): "no symbol 'U'", ("explain", "mlp", "--at", "T=0"): "lies in 1..65536",
                  ("explain", "mlp", "--at", "T=x"): "lies in", ("show", "mlp", "--stage", "fused"): "--stage", ("explain",): "target"}
        for args, message in wrongs.items():
            result = self.fathom("compile", *args)
            self.assertEqual(result.returncode, 5, args)
            self.assertRegex(result.stderr, message)
            self.assertEqual(result.stdout, "")

    def test_compile_tunes_and_keeps_what_it_found(self):
        env = {"XDG_CACHE_HOME": str(pathlib.Path(self.folder.name, "tuned"))}
        self.assertIn(": 0 tuned programs", self.fathom("compile", "cache", env=env).stdout)
        tuned = self.fathom("compile", "tune", "gated_norm", "--at", "T=5", "--seconds", "0.1", "--threads", "1", env=env)
        self.assertEqual(tuned.returncode, 0, tuned.stderr)
        self.assertRegex(tuned.stdout, r"gated_norm at T = 5, 1 thread: tried \d of 5 candidates")
        kept = pathlib.Path(re.search("kept in (.*)", tuned.stdout).group(1))
        listed = self.fathom("compile", "cache", env=env).stdout
        self.assertIn(": 1 tuned program", listed)
        self.assertRegex(listed, kept.name + r"\n    gated_norm, extents up to 8, 1 thread: ")
        kept.write_text(kept.read_text()[:200])
        self.assertIn("not used: it is damaged", self.fathom("compile", "cache", env=env).stdout)
        self.assertIn("deleted 1 file", self.fathom("compile", "cache", "--clear", env=env).stdout)
        self.assertFalse(kept.exists())

    def test_json_to_stdout_is_json_and_nothing_else(self):
        result, _ = self.run_once("ch08:accumulators", "--json")
        self.assertEqual(json.loads(result.stdout)["schema"], "fathom.results/1")

    def test_flags_are_environment_variables_too(self):
        result = self.fathom("run", "ch08:accumulators", "--artifacts-dir", self.artifacts, "--json",
                             env={"FATHOM_QUICK": "1", "FATHOM_REPEAT": "15"})
        self.assertEqual(json.loads(result.stdout)["experiments"][0]["points"][0]["rounds"], 15)

    def test_the_environment_overrides_axes_and_is_kept_without_secrets(self):
        result = self.fathom("run", "ch08:accumulators", "--quick", "--max-rounds", "10", "--calls-per-sample", "2",
                             "--artifacts-dir", self.artifacts,
                             env={"FATHOM_AXIS": "n=1000 variant=two_chains", "CUDA_DEVICE_MAX_CONNECTIONS": "1",
                                  "FATHOM_API_KEY": "do-not-tell", "CUDA_HOME": "/somewhere"})
        self.assertEqual(result.returncode, 0, result.stderr)
        run = next(path for path in pathlib.Path(self.artifacts).iterdir() if path.is_dir())
        point = json.loads((run / "results.json").read_text())["experiments"][0]["points"][0]
        self.assertEqual(point["at"], {"n": 1000})
        self.assertEqual((point["rounds"], point["calls_per_sample"]), (10, 2))
        self.assertEqual([variant["id"] for variant in point["variants"]], ["one_chain", "two_chains"])
        kept = json.loads((run / "manifest.json").read_text())["environment"]
        self.assertEqual(kept["FATHOM_AXIS"], "n=1000 variant=two_chains")
        self.assertEqual(kept["CUDA_DEVICE_MAX_CONNECTIONS"], "1")
        self.assertNotIn("CUDA_HOME", kept)
        for file in run.rglob("*.*"):
            self.assertNotIn("do-not-tell", file.read_text(errors="replace"), file)
        # A flag of the command line comes before the environment.
        chosen = self.fathom("verify", "ch08:accumulators", "-a", "variant=four_chains",
                             env={"FATHOM_AXIS": "variant=two_chains"})
        self.assertIn("four_chains", chosen.stdout)
        self.assertNotIn("two_chains", chosen.stdout)

    def test_a_cold_start_tells_the_first_use_apart(self):
        result = self.fathom("run", "ch08:accumulators", "--quick", "--cold-start", "--repeat", "3", "--json",
                             "--artifacts-dir", os.path.join(self.folder.name, "kept", "here"))
        self.assertEqual(result.returncode, 0, result.stderr)
        point = json.loads(result.stdout)["experiments"][0]["points"][0]
        self.assertEqual((point["cache"], point["rounds"]), ("cold_process", 3))
        for variant in point["variants"]:
            self.assertEqual(len(variant["samples_ns"]), 3)
            for part in ("process_start_ns", "inputs_ns", "later_call_ns"):
                self.assertGreater(variant["metrics"][part]["value"], 0)
        self.assertEqual(len(list(pathlib.Path(self.folder.name).glob("kept/here/*/results.json"))), 1)
        self.assertFalse(pathlib.Path(self.artifacts).exists())
        skipped = self.fathom("run", "ch07:transpose_gpu", "--quick", "--cold-start", "--artifacts-dir", self.artifacts,
                              env={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(skipped.returncode, 4, skipped.stderr)
        self.assertIn("needs_cuda", skipped.stdout)
        shown = self.fathom("run", "ch08:accumulators", "--quick", "--cold-start", "--repeat", "3", "--artifacts-dir",
                            self.artifacts).stdout
        self.assertRegex(shown, r"variant +process +inputs +prepare +first call +later calls")

    def test_aa_tries_the_method_and_records_what_it_found(self):
        refused = self.fathom("run", "ch08:accumulators", "--aa", "--quick", "--record")
        self.assertEqual(refused.returncode, 5, refused.stderr)
        result = self.fathom("run", "ch08:accumulators", "--aa", "--repeat", "20", "--record", "--results-dir", "records",
                             "--artifacts-dir", self.artifacts)
        self.assertIn(result.returncode, (0, 1), result.stderr)  # 1: this machine is too busy to find 5 %
        self.assertRegex(result.stdout, r"A/A: \d false verdicts at 1 points; 5 % of extra work found at \d of 1")
        records = list(pathlib.Path(self.folder.name).glob("records/**/*"))
        self.assertEqual([path.name for path in records if path.is_file()], ["aa.json"])
        seen = json.loads(next(path for path in records if path.is_file()).read_text())
        self.assertEqual((seen["schema"], seen["compared"], seen["injected_slowdown"], seen["injected_slowdown_by_calls"]), ("fathom.aa/1", 1, 1, 1))
        point = seen["points"][0]
        self.assertEqual((point["rounds"], point["injected_slowdown"]["extra"]), (20, "calls"))
        if "median" in point["injected_slowdown"] and "median" in point["a_a"]:  # a very busy machine: 20 rounds have no interval
            self.assertLess(point["injected_slowdown"]["median"], point["a_a"]["median"])

    def test_profile_says_where_a_cpu_variant_spends_its_time(self):
        result, run = self.run_once("ch08:accumulators", "--profile", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        point = json.loads(result.stdout)["experiments"][0]["points"][0]
        for variant in (v for v in point["variants"] if v["status"] == "ok"):
            self.assertGreater(variant["metrics"]["cpu_time_ns"]["value"], 0, variant["id"])
            folder = run / "ch08" / "accumulators" / variant["id"]
            seen = json.loads(next(folder.glob("functions*.json")).read_text())
            self.assertEqual(seen["schema"], "fathom.cpu_profile/1")
            self.assertIn("accumulators", seen["functions"][0]["name"])  # the variant's own loop
            self.assertGreater(seen["functions"][0]["share"], 0.5)
            self.assertIn("traceEvents", json.loads(next(folder.glob("trace*.json")).read_text()))
            self.assertIn("accumulators", next(folder.glob("functions*.md")).read_text())

    def test_verify_times_nothing(self):
        result = self.fathom("verify", "ch08:simd_dot")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_a_planned_label_is_nothing_but_a_skip(self):
        result = self.fathom("run", "ch4:nvl72_optimized", "--artifacts-dir", self.artifacts)
        self.assertEqual(result.returncode, 4, result.stdout + result.stderr)
        self.assertIn("not built yet", result.stdout.replace("\n", " "))

    def test_compare_with_itself_is_no_regression_and_a_slowdown_is(self):
        _, run = self.run_once()
        same = self.fathom("compare", str(run), str(run))
        self.assertEqual(same.returncode, 0, same.stdout + same.stderr)
        # On a busy machine the intervals may be too wide for a regression; these are made up to be narrow.
        record = json.loads((run / "results.json").read_text())
        point = record["experiments"][0]["points"][0]
        point["aa"] = {"lo": 0.999, "hi": 1.001, "advisory": False}
        for name, ratio in (("before", 2.0), ("after", 1.0)):
            for variant in point["variants"][1:]:
                variant["status"], variant["verdict"] = "ok", "FASTER"
                variant["ratio"] = {"median": ratio, "lo": ratio * 0.999, "hi": ratio * 1.001}
            pathlib.Path(self.folder.name, f"{name}.json").write_text(json.dumps(record))
        worse = self.fathom("compare", "before.json", "after.json")
        self.assertEqual(worse.returncode, 1, worse.stdout + worse.stderr)
        better = self.fathom("compare", "after.json", "before.json")
        self.assertEqual(better.returncode, 0, better.stdout + better.stderr)

    def test_broken_files_are_named(self):
        bad = pathlib.Path(self.folder.name, "bad.json")
        for text in ("", "{", "[]", '{"schema": "fathom.results/99"}', '{"schema": "fathom.results/1", "experiments": 3}'):
            bad.write_text(text)
            result = self.fathom("compare", str(bad), str(bad))
            self.assertEqual(result.returncode, 5, text)
            self.assertIn("bad.json", result.stderr)

    def test_a_killed_run_keeps_what_was_finished(self):
        process = subprocess.Popen([FATHOM, "run", "ch08", "--quick", "--artifacts-dir", self.artifacts],
                                   cwd=self.folder.name, env=self.env, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        deadline = time.time() + 120
        finished = []
        while time.time() < deadline and not finished:
            time.sleep(0.2)
            for path in pathlib.Path(self.artifacts).glob("*/results.json"):
                finished = json.loads(path.read_text())["experiments"]  # never half-written
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertGreaterEqual(len(finished), 1)

    def test_an_interrupted_run_records_what_was_finished(self):
        process = subprocess.Popen([FATHOM, "run", "ch08", "--quick", "--record", "--artifacts-dir", self.artifacts],
                                   cwd=self.folder.name, env={**self.env, "FATHOM_MACHINE": "test-machine"}, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        deadline = time.time() + 120
        while time.time() < deadline and not list(pathlib.Path(self.artifacts).glob("*/results.json")):
            time.sleep(0.1)
        process.terminate()
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 6, err)
        self.assertIn("those that had finished are kept", err)
        [folder] = pathlib.Path(self.artifacts).glob("*/results.json")
        finished = [each["id"] for each in json.loads(folder.read_text())["experiments"]]
        recorded = pathlib.Path(self.folder.name).glob("results/test-machine/**/*.json")
        self.assertEqual(sorted(path.stem for path in recorded), sorted(name.split("/")[1] for name in finished))
        self.assertGreaterEqual(len(finished), 1)
        self.assertTrue((folder.parent / "report.html").exists())
        self.assertIn(finished[0], out)
        self.assertEqual(self.processes_here(), [], "the experiment that ran is ended with the run")

    def processes_here(self):
        found = []
        for link in pathlib.Path("/proc").glob("[0-9]*/cwd"):
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                if os.path.samefile(link, self.folder.name):
                    found.append(link.parent.name)
        return found

    def test_expectations_round_trip(self):
        result = self.fathom("run", "ch08:accumulators", "--quick", "--record", "--artifacts-dir", self.artifacts,
                             env={"FATHOM_MACHINE": "test-machine"})
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        records = list(pathlib.Path(self.folder.name).glob("results/test-machine/ch08/accumulators.json"))
        self.assertEqual(len(records), 1, "records land under the working folder's results/")
        self.assertLessEqual(records[0].stat().st_size, 16384)
        self.assertIn("quantiles_ns", records[0].read_text())
        self.assertNotIn("samples_ns", records[0].read_text())

    def test_stale_chooses_what_has_no_record_from_todays_sources(self):
        machine = {"FATHOM_MACHINE": "test-machine"}
        both = ("ch08:accumulators", "ch08:simd_dot")
        chosen = lambda: self.fathom("run", *both, "--stale", "--list", env=machine).stdout
        self.assertRegex(chosen(), "(?s)ch08/accumulators.*ch08/simd_dot")
        self.fathom("run", "ch08:accumulators", "--quick", "--repeat", "20", "--record", "--artifacts-dir", self.artifacts,
                    env=machine)
        self.assertNotIn("ch08/accumulators", chosen())
        self.assertIn("ch08/simd_dot", chosen())
        nothing = self.fathom("run", "ch08:accumulators", "--stale", env=machine)
        self.assertEqual(nothing.returncode, 0)
        self.assertIn("has a record of test-machine from today's sources", nothing.stdout)
        record = pathlib.Path(self.folder.name, "results/test-machine/ch08/accumulators.json")
        text = json.loads(record.read_text())
        text["experiments"][0]["source_hash"] = "0" * 16
        record.write_text(json.dumps(text))
        self.assertIn("ch08/accumulators", chosen())

    def test_trends_of_several_runs_beside_what_is_recorded(self):
        _, run = self.run_once()
        record = json.loads((run / "results.json").read_text())
        variant = record["experiments"][0]["points"][0]["variants"][0]
        variant["metrics"]["tpot_p50_ns"] = {"value": 2e6, "better": "lower"}
        paths = []
        for day, time_ns in ((3, 120.0), (1, 100.0), (2, 101.0)):  # named in any order, shown by their start
            record["started"] = f"2026-01-0{day}T00:00:00Z"
            variant["time_ns"]["median"] = time_ns
            paths.append(f"day{day}.json")
            pathlib.Path(self.folder.name, paths[-1]).write_text(json.dumps(record))
        self.assertEqual(self.fathom("expect", "update", "day1.json", "--results-dir", "records").returncode, 0)
        trend = json.loads(self.fathom("expect", "trend", *paths, "--results-dir", "records", "--json",
                                       "-f", f"/{variant['id']}.* (time_ns|tpot)").stdout)
        self.assertEqual((trend["schema"], [day[8:10] for day in trend["runs"]]), ("fathom.trends/1", ["01", "02", "03"]))
        time_ns, tpot = trend["trends"]
        self.assertEqual((time_ns["values"], time_ns["expected"], time_ns["worse_runs"]), ([100, 101, 120], 100, 1))
        self.assertEqual((tpot["metric"], tpot["values"], tpot["worse_runs"]), ("tpot_p50_ns", [2e6] * 3, 0))
        shown = self.fathom("expect", "trend", *paths, "--results-dir", "records", "-f", "tpot").stdout
        self.assertRegex(shown, r"tpot_p50_ns +lower +2\.00 ms .* 0 of 3")
        nothing = self.fathom("expect", "trend", "--artifacts-dir", "nowhere")
        self.assertEqual(nothing.returncode, 5)
        self.assertIn("there is no run under nowhere", nothing.stderr)

    def test_techniques_covers_the_chapters(self):
        result = self.fathom("techniques")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        catalog = json.loads(self.fathom("techniques", "--json").stdout)["catalog"]
        works = sum(row["status"] == "works" for row in catalog)
        # The overview counts the whole catalog, not the rows that experiments name.
        self.assertRegex(result.stdout, rf"all +{len(catalog)} +{works} ")
        self.assertRegex(result.stdout, r"\d+ of \d+ records are stale")
        self.assertIn("layout_change", self.fathom("techniques", "ch07").stdout)
        status = next(row["status"] for row in catalog if row["id"] == "moe-005")
        row = self.fathom("techniques", "moe-005").stdout
        self.assertIn(f"moe-005  {status}", row)
        self.assertIn("status:   ", row)
        misspelt = self.fathom("techniques", "quantt")
        self.assertEqual(misspelt.returncode, 5)
        self.assertIn("'quant'", misspelt.stderr)

    def verbs(self, *parents):
        """All verbs, as their help lists them, and those below: [], ["run"], .., ["bench", "latency"], .."""
        told = self.fathom(*parents, "--help").stdout.partition("\nSubcommands:\n")[2].partition("\n\n")[0]
        below = re.findall(r"^  ([\w-]+)", told, re.MULTILINE)
        return [list(parents), *(verb for name in below for verb in self.verbs(*parents, name))]

    def test_commands_of_the_documents_exist(self):
        """Every command of README and docs/: its verb and the names of its flags. The course has a test of its own."""
        verbs, helps, wrong, seen = self.verbs(), {}, [], 0
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
            for number, line in enumerate(page.read_text().splitlines(), 1):
                command = re.match(r"(?:    |\$ |)(?:build/release/)?fathom ([a-z].*)", line)
                if not command:
                    continue
                words = re.sub(r"'[^']*'|\"[^\"]*\"|#.*| -- .*", "", command[1]).split()
                verb = max((verb for verb in verbs if words[:len(verb)] == verb), key=len)
                if verb and tuple(verb) not in helps:
                    helps[tuple(verb)] = set(re.findall(r"(?<![\w-])--?[\w-]+", self.fathom(*verb, "--help").stdout))
                if not verb:
                    wrong.append(f"{page.name}:{number}: no verb '{words[0]}'")
                    continue
                seen += 1
                wrong += [f"{page.name}:{number}: {' '.join(verb)} has no {flag}" for flag in
                          (word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)) if flag not in helps[tuple(verb)]]
        self.assertEqual(wrong, [])
        self.assertGreater(seen, 100)

    def test_text_fits_100_columns(self):
        verbs = self.verbs()
        self.assertGreater(len(verbs), 25)
        for args in (["list"], ["techniques"], ["techniques", "quant", "ch09"], ["doctor"], ["doctor", "--quick"],
                     ["verify", "ch08:simd_dot", "ch07:transpose_gpu"], ["run", "ch08:simd_dot", "--quick"],
                     ["history"], *([*verb, "--help"] for verb in verbs)):
            for line in self.fathom(*args).stdout.splitlines():
                self.assertLessEqual(len(line), 100, f"{args}: {line}")

    def test_skips_of_verify_are_a_line_for_each_reason(self):
        result = self.fathom("verify", "ch07:*_gpu", env={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(result.returncode, 4, result.stdout)
        lines = [line for line in result.stdout.splitlines() if line.startswith("skipped: ")]
        self.assertLessEqual(len(lines), 2, result.stdout)
        self.assertRegex(lines[0], r"skipped: \d+ variants of ")

    def test_history_shows_the_run(self):
        self.run_once()
        result = self.fathom("history")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("accumulators", result.stdout)

    def test_history_check_fails_on_a_lasting_change_for_the_worse_only(self):
        self.run_once()  # makes the database

        def check(*ratios):
            with contextlib.closing(sqlite3.connect(self.env["FATHOM_HISTORY"])) as database, database:
                machine = database.execute("SELECT machine FROM run").fetchone()[0]
                database.execute("DELETE FROM result")
                database.execute("DELETE FROM run")
                for day, ratio in enumerate(ratios):
                    database.execute("INSERT INTO run VALUES (?, ?, ?, 'nightly', ?)",
                                     (day + 1, machine, f"2026-05-{day + 1:02}T00:00:00Z", f"commit{day}"))
                    database.execute("INSERT INTO result VALUES (?, 'ch07/x', 'tiled', 'n=1', 'hash', ?, NULL, NULL, ?, NULL, NULL, NULL)",
                                     (day + 1, 1e6 * (day + 1), ratio))  # times drift, and ratios decide
            return self.fathom("history", "--check")

        noise = [1 + 0.002 * ((7 * i) % 5 - 2) for i in range(24)]
        self.assertEqual(check(*[2 * n for n in noise]).returncode, 0)
        worse = check(*[(2 if i < 12 else 1.8) * n for i, n in enumerate(noise)])
        self.assertEqual(worse.returncode, 1, worse.stderr)
        self.assertIn("worse: ch07/x/tiled?n=1: 2.00", worse.stderr)
        self.assertIn("commit commit12 after commit11", worse.stderr)
        self.assertEqual(check(*[(2 if i < 12 else 2.2) * n for i, n in enumerate(noise)]).returncode, 0)  # better
        self.assertEqual(check(*[(2 if i < 12 else 1.98) * n for i, n in enumerate(noise)]).returncode, 0)  # within 2 %
        mended = [(2 if i < 8 or i >= 16 else 1.8) * n for i, n in enumerate(noise)]
        self.assertEqual(check(*mended).returncode, 0)

    def test_doctor_json(self):
        facts = json.loads(self.fathom("doctor", "--json").stdout)
        self.assertEqual(facts["schema"], "fathom.doctor/1")


if __name__ == "__main__":
    unittest.main(verbosity=2)
