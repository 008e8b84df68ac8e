"""Ranks as processes of this host: `fathom launch` starts, names, ends and outlives none of them.

usage: launch_test.py FATHOM
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

FATHOM = os.path.abspath(sys.argv.pop(1))
FOR_EVER = ["bench", "collectives", "--op", "all_reduce", "--num-iters", "1000000", "--max-bytes", "64"]


def ranks_of(launcher):
    """The processes of its ranks that are alive: {rank: pid}."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if int(parent[1]) == launcher and parent[0] != "Z":
            for entry in environment:
                if entry.startswith(b"RANK="):
                    found[int(entry[5:])] = int(folder.name)
    return found


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Launch(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def launch(self, *args, env=None):
        return subprocess.run([FATHOM, "launch", *args], capture_output=True, text=True, cwd=self.folder.name, timeout=60,
                              env=dict(os.environ, **(env or {})))

    def started(self, ranks=3):
        """A launch whose ranks are all in the middle of their work."""
        launch = subprocess.Popen([FATHOM, "launch", "--ranks", str(ranks), "--", *FOR_EVER], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder.name)
        self.addCleanup(launch.wait)
        self.addCleanup(launch.kill)
        # A rank that has joined has connections to the others and does not listen for more.
        self.assertTrue(until(lambda: len(ranks_of(launch.pid)) == ranks))
        pids = ranks_of(launch.pid)
        sockets = lambda pid: sum("socket:" in os.readlink(fd) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink())
        self.assertTrue(until(lambda: all(sockets(pid) == 2 * (ranks - 1) for pid in pids.values())))
        return launch, pids

    def test_ranks_measure_together_and_say_who_they_are(self):
        result = self.launch("--ranks", "3", "--", "bench", "collectives", "--num-iters", "5", "--max-bytes", "4096",
                             "--op", "all_reduce,all_gather,reduce_scatter,all_to_all,broadcast,barrier", "--json=out.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        record = json.loads(pathlib.Path(self.folder.name, "out.json").read_text())
        self.assertEqual((record["ranks"], record["transport"]), (3, "processes over TCP"))
        self.assertEqual(len(record["results"]), 5 * 2 + 1)
        self.assertTrue(all(row["wrong"] == 0 and row["median_s"] > 0 for row in record["results"]))
        table = self.launch("--ranks", "2", "--", "bench", "collectives", "--num-iters", "5", "--max-bytes", "64")
        self.assertIn("[0] 2 ranks, processes over TCP", table.stdout)
        self.assertNotIn("[1]", table.stdout)

    def test_a_plan_starts_nothing_and_says_that_it_is_modelled(self):
        plan = self.launch("--plan", "pp2_dp1_tp4", "--shape", "llama-3-70b", "--sequence", "2048", "--gpu-memory", "180",
                           "--nccl-profile", "b200x8")
        self.assertEqual(plan.returncode, 0, plan.stderr)
        for said in ["Modelled, not measured: llama-3-70b, 70.55 billion parameters, on 8 ranks (pp2_dp1_tp4)",
                     "export NCCL_P2P_LEVEL='NVL'"]:
            self.assertIn(said, plan.stdout)
        self.assertRegex(plan.stdout, r"tp4 +0 1 2 3 +NVLink")
        self.assertRegex(plan.stdout, r"pp2 +0 4 +NVLink")

    def test_a_plan_that_cannot_be_is_a_usage_error(self):
        for arguments, said in [(["--plan", "tp8", "--shape", "llama-3-70b"], "its GPU has 80.0 GB"),
                                (["--plan", "tp4_dp2", "--domain", "4"], "tp4 crosses NVLink domains of 4 GPUs"),
                                (["--plan", "pp3"], "layers (32) do not divide by pp (3)"),
                                (["--plan", "dp8", "--shape", "gpt"], "there are llama-3-8b"),
                                (["--plan", "8"], "8")]:
            plan = self.launch(*arguments)
            self.assertEqual((plan.returncode, plan.stdout), (5, ""), plan.stderr)
            self.assertIn(said, plan.stderr)

    def test_threads_stand_in_where_nothing_was_launched(self):
        result = subprocess.run([FATHOM, "bench", "collectives", "--ranks", "4", "--num-iters", "5", "--max-bytes", "64", "--json"],
                                capture_output=True, text=True, timeout=60)
        record = json.loads(result.stdout)
        self.assertEqual((record["ranks"], record["transport"]), (4, "threads"))

    def test_a_killed_rank_ends_all_and_is_named(self):
        launch, pids = self.started()
        began = time.monotonic()
        os.kill(pids[1], signal.SIGKILL)
        _, errors = launch.communicate(timeout=30)
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(launch.returncode, 6, errors)
        self.assertIn("rank 1 was ended by signal 9", errors)
        for rank in (0, 2):
            self.assertRegex(errors, rf"\[{rank}\] .*rank 1 died while others were in")
        self.assertFalse(any(alive(pid) for pid in pids.values()))

    def test_a_stopped_rank_ends_all_after_the_timeout(self):
        os.environ["FATHOM_GROUP_TIMEOUT"] = "1"
        self.addCleanup(os.environ.pop, "FATHOM_GROUP_TIMEOUT")
        launch, pids = self.started()
        os.kill(pids[2], signal.SIGSTOP)
        # It cannot hear that it should end, and is killed.
        _, errors = launch.communicate(timeout=30)
        self.assertEqual(launch.returncode, 6, errors)
        self.assertRegex(errors, r"\[0\] .*rank 2 did not come to .* within 1 s")
        self.assertFalse(any(alive(pid) for pid in pids.values()))

    def test_signals_are_passed_on_and_no_rank_outlives_the_launcher(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            launch, pids = self.started(2)
            launch.send_signal(number)
            launch.communicate(timeout=30)
            self.assertNotEqual(launch.returncode, 0)
            self.assertTrue(until(lambda: not any(alive(pid) for pid in pids.values())), number)

    def test_the_exit_code_is_that_of_the_rank_that_failed(self):
        result = self.launch("--ranks", "2", "--", "bench", "collectives", "--op", "nonsense")
        self.assertEqual(result.returncode, 5)
        self.assertRegex(result.stderr, r"fathom launch: rank [01] ended with exit code 5")
        self.assertRegex(result.stderr, r"\[0\] .*nonsense")
        wrong = self.launch("--ranks", "2", "--", "bench", "collectives", env={"FATHOM_GROUP_TIMEOUT": "soon"})
        self.assertEqual(wrong.returncode, 5)
        self.assertIn("FATHOM_GROUP_TIMEOUT=soon", wrong.stderr)

    def test_what_is_mistyped_says_so(self):
        for args in (["--ranks", "0", "--", "list"], ["--ranks", "2"], ["--", "launch", "--", "list"],
                     ["--wdir", "/no/such/folder", "--", "list"]):
            result = self.launch(*args)
            self.assertEqual(result.returncode, 5, args)
            self.assertIn("fathom launch: ", result.stderr)

    def test_nccl_profiles_are_printed_for_a_shell(self):
        every = self.launch("--print")
        self.assertEqual(every.returncode, 0, every.stderr)
        for name in ("hopper", "b200x8", "nvl72"):
            self.assertIn(f"# NCCL profile {name}: ", every.stdout)
        one = self.launch("--nccl-profile", "b200x8", "--print").stdout
        self.assertIn("# source: ", one)
        self.assertIn("# needs: 8 x B200", one)
        shell = subprocess.run(["sh", "-euc", 'eval "$1"; echo "$NCCL_ALGO $NCCL_IB_QPS_PER_CONNECTION"', "sh", one],
                               capture_output=True, text=True)
        self.assertEqual(shell.stdout, "Ring,Tree 4\n", shell.stderr)

    def test_an_nccl_profile_is_checked_and_refused_by_type(self):
        refused = self.launch("--nccl-profile", "hopper", "--", "bench", "collectives")
        if refused.returncode != 4:
            self.skipTest("this host has two H100s or H200s")
        self.assertIn("needs_gpus(2 x H100 or H200): NCCL profile hopper is for", refused.stderr)
        self.assertIn("no NCCL profile 'b200'", self.launch("--nccl-profile", "b200", "--", "list").stderr)
        mine = pathlib.Path(self.folder.name, "mine.conf")
        for line, said in (("NCCL_ALGOS=Ring", "mine.conf, line 2: NCCL's user guide has no variable 'NCCL_ALGOS'; did you mean "
                            "'NCCL_ALGO'?"),
                           ("NCCL_MIN_CTAS=0", "line 2: NCCL_MIN_CTAS=0: NCCL would not take it; a whole number from 1 to 64")):
            mine.write_text(f"# mine\n{line}\n")
            result = self.launch("--nccl-profile", "./mine.conf", "--", "list")
            self.assertEqual(result.returncode, 5)
            self.assertIn(said, result.stderr)
        mine.write_text("NCCL_MIN_CTAS=8\n")
        said = self.launch("--nccl-profile", "./mine.conf", "--ranks", "1", "--", "serve", "--help", env={"NCCL_MIN_CTAS": "4"})
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("sets nothing; the environment's NCCL_MIN_CTAS=4 stays", said.stderr)

    def test_nics_are_refused_by_type_where_there_are_none(self):
        if pathlib.Path("/sys/class/infiniband").exists():
            self.skipTest("this host has NICs for RDMA")
        result = self.launch("--ranks", "1", "--nets-per-gpu", "2", "--", "list")
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertRegex(result.stderr, r"needs_(gpus\(1\)|feature\(rdma\)): --nets-per-gpu 2 cannot be had on")

    def test_pairs_of_ranks_are_timed_one_by_one(self):
        result = self.launch("--ranks", "3", "--", "bench", "collectives", "--fabric", "--num-iters", "5", "--json=out.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        fabric = json.loads(pathlib.Path(self.folder.name, "out.json").read_text())
        self.assertEqual(fabric["schema"], "fathom.fabric/1")
        self.assertEqual([(pair["a"], pair["b"]) for pair in fabric["pairs"]], [(0, 1), (0, 2), (1, 2)])
        self.assertEqual({pair["kind"] for pair in fabric["pairs"]}, {"same host"})
        self.assertTrue(all(pair["wrong"] == 0 and pair["latency_s"] > 0 for pair in fabric["pairs"]))
        text = self.launch("--ranks", "3", "--", "bench", "collectives", "--fabric", "--num-iters", "5").stdout
        self.assertIn("latency, us", text)
        self.assertIn("same host, 3 pairs: slowest by latency ranks", text)


if __name__ == "__main__":
    unittest.main()
