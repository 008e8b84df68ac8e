"""`fathom launch --hosts`: ranks of several hosts over a real ssh, and what is left of them when something dies.

usage: launch_hosts_test.py FATHOM
"""

import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from ssh_hosts import Namespaces, aliases, free_port, until, why_no_namespaces, why_no_sshd

FATHOM = os.path.abspath(sys.argv.pop(1))
FOR_EVER = ["bench", "collectives", "--op", "all_reduce", "--num-iters", "1000000", "--max-bytes", "64"]
SHORT = ["bench", "collectives", "--num-iters", "5", "--max-bytes", "64"]


def processes(mark):
    """What carries the mark in its environment and is alive: [(pid, parent, environment)]."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            status = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            environment = (folder / "environ").read_bytes()
        except OSError:  # it has ended
            continue
        if f"FATHOM_TEST_MARK={mark}\0".encode() in environment and status[0] != "Z":
            pairs = (entry.split("=", 1) for entry in environment.decode().split("\0") if "=" in entry)
            found.append((int(folder.name), int(status[1]), dict(pairs)))
    return found


class Launched(unittest.TestCase):
    """Launches, each marked by a variable that goes with its ranks to every host."""

    hosts = None  # SshHosts

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.mark = f"{os.getpid()}-{self.id()}"
        self.environment = dict(os.environ, FATHOM_TEST_MARK=self.mark)

    def arguments(self, *args):
        return [FATHOM, "launch", *([] if "--ssh" in args else ["--ssh", self.hosts.ssh]), *args]

    def launch(self, *args, env=None, timeout=60):
        return subprocess.run(self.arguments(*args), capture_output=True, text=True, cwd=self.folder.name,
                              env=dict(self.environment, **(env or {})), timeout=timeout)

    def ranks(self):
        return {int(env["RANK"]): (pid, parent, env) for pid, parent, env in processes(self.mark) if "RANK" in env}

    def started(self, count, *args, env=None):
        """A launch whose ranks are all in the middle of their work."""
        launch = subprocess.Popen(self.arguments(*args, "--", *FOR_EVER), text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, cwd=self.folder.name, env=dict(self.environment, **(env or {})))
        self.addCleanup(launch.communicate)
        self.addCleanup(launch.kill)

        def joined():
            try:
                sockets = [sum("socket:" in os.readlink(fd) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir())
                           for pid, _, _ in self.ranks().values()]
            except OSError:
                return False
            return len(sockets) == count and all(n == 2 * (count - 1) for n in sockets)

        if not until(joined):
            launch.kill()
            self.fail(f"the ranks did not come together: {launch.communicate()}")
        return launch, self.ranks()

    def none_left(self, seconds=10):
        self.assertTrue(until(lambda: not processes(self.mark), seconds), processes(self.mark))


@unittest.skipIf(why_no_sshd(), why_no_sshd())
class Aliases(Launched):
    """Two names of this machine, which the launcher takes for two hosts."""

    @classmethod
    def setUpClass(cls):
        cls.hosts = aliases("alpha", "beta", "gamma")
        cls.addClassCleanup(cls.hosts.close)

    TWO = ("--hosts", "alpha:2,beta:1", "--master-addr", "127.0.0.1")

    def test_ranks_of_two_hosts_measure_together(self):
        result = self.launch(*self.TWO, "--", *SHORT, "--json=out.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        record = json.loads(pathlib.Path(self.folder.name, "out.json").read_text())
        self.assertEqual((record["ranks"], record["transport"]), (3, "processes over TCP"))
        self.assertTrue(all(row["wrong"] == 0 for row in record["results"]))
        table = self.launch(*self.TWO, "--", *SHORT)
        self.assertIn("[0] 3 ranks, processes over TCP", table.stdout)
        self.assertNotIn("{", table.stdout)  # what the launchers say to each other
        self.none_left()

    def test_every_line_arrives(self):
        plain = subprocess.run([FATHOM, "serve", "--help"], capture_output=True, text=True, cwd=self.folder.name)
        result = self.launch("--hosts", "alpha", "--", "serve", "--help")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "".join(f"[0] {line}\n" for line in plain.stdout.splitlines()))
        self.assertGreater(len(plain.stdout), 2000)

    def test_ranks_are_numbered_and_told_as_by_torchrun(self):
        _, ranks = self.started(3, *self.TWO, "-x", "ASKED=for it", "-x", "FROM_HERE",
                                env={"NCCL_DEBUG": "WARN", "FROM_HERE": "here", "NOT_PASSED": "on"})
        told = {rank: {name: env.get(name) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "GROUP_RANK",
                                                        "MASTER_ADDR", "FATHOM_NODE_NAME")}
                for rank, (_, _, env) in ranks.items()}
        both = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1"}
        alpha = {**both, "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "FATHOM_NODE_NAME": "alpha"}
        beta = {**both, "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "1", "FATHOM_NODE_NAME": "beta"}
        self.assertEqual(told, {0: {**alpha, "LOCAL_RANK": "0"}, 1: {**alpha, "LOCAL_RANK": "1"},
                                2: {**beta, "LOCAL_RANK": "0"}})
        for pid, _, env in ranks.values():
            self.assertEqual((env["NCCL_DEBUG"], env["ASKED"], env["FROM_HERE"]), ("WARN", "for it", "here"))
            self.assertNotIn("NOT_PASSED", env)
            self.assertEqual(os.readlink(f"/proc/{pid}/cwd"), os.path.realpath(self.folder.name))
        self.assertEqual(len({env["MASTER_PORT"] for _, _, env in ranks.values()}), 1)
        self.assertEqual(len({parent for _, parent, _ in ranks.values()}), 2)  # a launcher on each host

    def test_hostfile_and_fewer_ranks_than_room(self):
        pathlib.Path(self.folder.name, "hosts").write_text("# two\nalpha slots=2\nbeta slots=4\n")
        result = self.launch("--hostfile", "hosts", "--ranks", "3", "--master-addr", "127.0.0.1", "--", *SHORT)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("[0] 3 ranks", result.stdout)
        more = self.launch("--hostfile", "hosts", "--ranks", "7", "--", *SHORT)
        self.assertEqual(more.returncode, 5)
        self.assertIn("the hosts have room for 6; write how many each takes, as in beta:5", more.stderr)

    def test_this_host_needs_no_ssh(self):
        result = self.launch("--hosts", "localhost:2,beta:1", "--master-addr", "127.0.0.1", "--", *SHORT)
        self.assertEqual(result.returncode, 0, result.stderr)
        result = self.launch("--hosts", "localhost:2,127.0.0.1:1", "--ssh", "false", "--", *SHORT)
        self.assertEqual(result.returncode, 0, result.stderr)
        loopback = self.launch("--hosts", "localhost:2,beta:1", "--", *SHORT)
        self.assertEqual(loopback.returncode, 5)
        self.assertIn("where other hosts cannot reach it; name that host by an address", loopback.stderr)

    def test_a_launcher_on_each_host_by_hand(self):
        port = str(free_port())
        args = ["--hosts", "alpha:2,beta:1", "--master-addr", "127.0.0.1", "--master-port", port]
        other = subprocess.Popen([FATHOM, "launch", *args, "--node-rank", "1", "--", *SHORT], cwd=self.folder.name,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment)
        first = subprocess.run([FATHOM, "launch", *args, "--node-rank", "0", "--", *SHORT], cwd=self.folder.name,
                               capture_output=True, text=True, env=self.environment, timeout=60)
        out, errors = other.communicate(timeout=60)
        self.assertEqual((first.returncode, other.returncode), (0, 0), first.stderr + errors)
        self.assertIn("[0] 3 ranks", first.stdout)
        self.assertEqual(out, "")
        self.assertIn("there are 2 hosts, from 0 to 1", self.launch(*args, "--node-rank", "2", "--", *SHORT).stderr)

    def test_a_killed_rank_ends_those_of_all_hosts_and_is_named(self):
        for rank, named in ((2, "rank 2 on beta"), (0, "rank 0 on alpha")):
            launch, ranks = self.started(3, *self.TWO)
            began = time.monotonic()
            os.kill(ranks[rank][0], signal.SIGKILL)
            _, errors = launch.communicate(timeout=30)
            self.assertLess(time.monotonic() - began, 10)
            self.assertEqual(launch.returncode, 6, errors)
            self.assertIn(f"fathom launch: {named} was ended by signal 9 (Killed); that ended all", errors)
            for other in {0, 1, 2} - {rank}:
                self.assertRegex(errors, rf"(?m)^\[{other}\] .*rank {rank} died while others were in")
            self.none_left()

    def test_the_exit_code_is_that_of_the_rank_that_failed(self):
        result = self.launch(*self.TWO, "--", "bench", "collectives", "--op", "nonsense")
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertRegex(result.stderr, r"fathom launch: rank \d on (alpha|beta) ended with exit code 5; that ended all")
        self.assertRegex(result.stderr, r"(?m)^\[[012]\] .*nonsense")

    def test_signals_reach_all_hosts_and_nothing_outlives_the_launcher(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            launch, _ = self.started(3, *self.TWO)
            launch.send_signal(number)
            _, errors = launch.communicate(timeout=30)
            self.assertNotEqual(launch.returncode, 0, errors)
            self.none_left()

    def test_a_lost_host_is_named_with_its_ranks(self):
        launch, ranks = self.started(3, *self.TWO)
        follower = ranks[2][1]
        session = int(pathlib.Path(f"/proc/{follower}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(session, signal.SIGKILL)  # sshd's, of this connection
        _, errors = launch.communicate(timeout=30)
        self.assertEqual(launch.returncode, 6, errors)
        self.assertRegex(errors, r"the connection to beta was lost \(.*exit code 255\): rank 2 there is taken as ended")
        self.assertIn("fathom launch: beta was lost; that ended all", errors)
        self.none_left()
        launch, ranks = self.started(3, *self.TWO)
        os.kill(ranks[2][1], signal.SIGKILL)  # the launcher there
        _, errors = launch.communicate(timeout=30)
        self.assertEqual(launch.returncode, 6, errors)
        self.assertIn("the connection to beta was lost", errors)
        self.none_left()

    def test_a_rank_that_does_not_hear_is_killed_on_its_host(self):
        launch, ranks = self.started(3, *self.TWO)
        os.kill(ranks[1][0], signal.SIGSTOP)
        launch.send_signal(signal.SIGTERM)
        launch.communicate(timeout=40)
        self.assertEqual(launch.returncode, 6)
        self.none_left()

    def test_a_host_without_answer_is_named_before_anything_starts(self):
        self.hosts.name("closed", "127.0.0.1", free_port())
        began = time.monotonic()
        result = self.launch("--hosts", "alpha:2,closed:2", "--master-addr", "127.0.0.1", "--", *FOR_EVER)
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(result.returncode, 6)
        self.assertRegex(result.stderr, r"no rank can be started on closed: .*Connection refused; `ssh -F \S+ closed true` "
                                        "must work without a question")
        self.assertEqual(result.stdout, "")
        unknown = self.launch("--hosts", "no-such-host.invalid", "--", *SHORT)
        self.assertIn("no rank can be started on no-such-host.invalid", unknown.stderr)
        key = self.hosts.path / "known"
        text = key.read_text()
        key.write_text("")
        self.addCleanup(key.write_text, text)
        strange = self.launch("--hosts", "alpha", "--", *SHORT)
        self.assertEqual(strange.returncode, 6)
        self.assertIn("Host key verification failed", strange.stderr)
        missing = self.launch("--ssh", "/no/such/ssh", "--hosts", "alpha", "--", *SHORT)
        self.assertIn("/no/such/ssh is no program of this host", missing.stderr)

    def reached_by(self, change):
        """An ssh that changes the command that it carries: a sed script."""
        script = pathlib.Path(self.folder.name, "reach")
        script.write_text(f"#!/bin/sh\nexec {self.hosts.ssh} \"$1\" \"$(printf %s \"$2\" | sed '{change}')\"\n")
        script.chmod(0o755)
        return str(script)

    def test_a_host_without_this_program_is_told_apart(self):
        nowhere = self.reached_by(f"s|{FATHOM}|/nowhere/fathom|")
        result = self.launch("--ssh", nowhere, "--hosts", "alpha", "--", *SHORT)
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertRegex(result.stderr, r"alpha has no \S+, and no fathom on the PATH of a shell that is no login; copy it")
        other = pathlib.Path(self.folder.name, "other")
        other.write_text("#!/bin/sh\necho '{\"fathom_launch\":1,\"version\":\"0.0 other\",\"port\":1}'; exec cat\n")
        other.chmod(0o755)
        result = self.launch("--ssh", self.reached_by(f"s|{FATHOM}|{other}|"), "--hosts", "alpha", "--", *SHORT)
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertIn("alpha has another build of fathom (0.0 other; here", result.stderr)
        self.none_left()

    def test_a_folder_that_a_host_lacks_is_named(self):
        result = self.launch(*self.TWO, "--wdir", "/no/such/folder", "--", *SHORT)
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertRegex(result.stderr, "there is no folder /no/such/folder on (alpha|beta); make it there, or name one")
        self.none_left()

    def test_what_is_mistyped_is_named(self):
        for args, said in ((["--hosts", "alpha:none"], "alpha:none: 'none' is no number of ranks"),
                           (["--hosts=-oProxyCommand=x"], "is no name of a host"),
                           (["--hosts", "alpha", "--hostfile", "x"], "give one of them"),
                           (["--hostfile", "x"], "x cannot be read"),
                           (["--ssh", " ", "--hosts", "alpha"], "name the program that reaches a host"),
                           (["-x", "NOT_SET_ANYWHERE"], "it is not set here")):
            result = self.launch(*args, "--", *SHORT)
            self.assertEqual(result.returncode, 5, args)
            self.assertIn(said, result.stderr)

    def test_an_nccl_profile_is_refused_by_type_and_forced_without_multicast(self):
        result = self.launch(*self.TWO, "--nccl-profile", "b200x8", "--", *SHORT)
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertRegex(result.stderr, r"needs_gpus\(8 x B200\): NCCL profile b200x8 is for eight B200s of one host, and on "
                                        "(alpha|beta) there is no GPU")
        launch, ranks = self.started(3, *self.TWO, "--nccl-profile", "b200x8", "--force-nccl-profile",
                                     env={"NCCL_PROTO": "Simple"})
        for _, _, env in ranks.values():
            self.assertEqual({name: env.get(name) for name in ("NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE")},
                             {"NCCL_ALGO": "Ring,Tree", "NCCL_PROTO": "Simple", "NCCL_NVLS_ENABLE": "0"})
        launch.terminate()
        _, errors = launch.communicate(timeout=30)
        for host in ("alpha", "beta"):
            self.assertRegex(errors, rf"\[{host}\] fathom launch: NCCL profile b200x8 sets NCCL_ALGO=Ring,Tree, .*; the "
                                     "environment's NCCL_PROTO=Simple stays; NVLink multicast is off")


@unittest.skipIf(why_no_sshd() or why_no_namespaces(), why_no_sshd() or why_no_namespaces())
class Hosts(Launched):
    """Network namespaces: hosts with addresses of their own, and links that can be cut."""

    @classmethod
    def setUpClass(cls):
        # It takes more than 20 s, in which nothing happens, to notice a cut link: beside the other tests.
        cls.torn = cls()
        cls.addClassCleanup(cls.torn.doCleanups)
        cls.torn.setUp()
        cls.torn.launched, _ = cls.torn.started(4, *cls.torn.everywhere(), env={"FATHOM_GROUP_TIMEOUT": "300"})
        cls.torn.spaces.cut(3)
        cls.torn.ended = concurrent.futures.ThreadPoolExecutor(1).submit(cls.torn.cut_to_end, time.monotonic())

    def cut_to_end(self, began):
        _, errors = self.launched.communicate(timeout=60)
        return time.monotonic() - began, errors

    def setUp(self):
        super().setUp()
        self.spaces = Namespaces(4)
        self.addCleanup(self.spaces.close)
        self.hosts = self.spaces.hosts

    def everywhere(self, ranks=1):
        return ["--hosts", ",".join(f"{address}:{ranks}" for address in self.spaces.addresses)]

    def test_ranks_meet_on_rank_0s_host(self):
        # The launcher's name for it, which the others do not know.
        self.hosts.name("my-first", self.spaces.addresses[0], 22)
        launch, ranks = self.started(4, "--hosts", f"my-first:2,{self.spaces.addresses[1]}:2")
        self.assertEqual({env["MASTER_ADDR"] for _, _, env in ranks.values()}, {self.spaces.addresses[0]})
        launch.terminate()
        launch.communicate(timeout=30)
        self.none_left()

    def test_eight_ranks_a_host_exchange(self):
        two = ["--hosts", ",".join(f"{address}:8" for address in self.spaces.addresses[:2])]
        result = self.launch(*two, "--", *SHORT, "--op", "all_to_all", "--json=out.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        record = json.loads(pathlib.Path(self.folder.name, "out.json").read_text())
        self.assertEqual((record["ranks"], [row["wrong"] for row in record["results"]]), (16, [0]))
        result = self.launch(*self.everywhere(), "--", "bench", "collectives", "--fabric", "--nvlink", "2",
                             "--json=fabric.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        fabric = json.loads(pathlib.Path(self.folder.name, "fabric.json").read_text())
        self.assertEqual({(pair["a"], pair["b"]) for pair in fabric["pairs"] if pair["kind"] == "same NVLink domain"},
                         {(0, 1), (2, 3)})

    def test_the_ranks_on_both_sides_of_a_cut_link_end(self):
        seconds, errors = self.torn.ended.result()
        self.assertLess(seconds, 40)
        self.assertEqual(self.torn.launched.returncode, 6, errors)
        self.assertIn(f"the connection to {self.torn.spaces.addresses[3]} was lost (nothing was heard of it for 20 s): rank 3 "
                      "there is taken as ended", errors)
        self.torn.none_left(30)  # beyond the cut, too: nobody could tell that rank

    def test_a_slow_link_is_named(self):
        self.spaces.slow_down(2, "200mbit")
        result = self.launch(*self.everywhere(), "--", "bench", "collectives", "--fabric", "--json=out.json", timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        fabric = json.loads(pathlib.Path(self.folder.name, "out.json").read_text())
        self.assertEqual(fabric["hosts"], self.spaces.addresses)
        slow = {(pair["a"], pair["b"]) for pair in fabric["pairs"] if pair["slow"]}
        self.assertGreaterEqual(slow, {(0, 2), (1, 2), (2, 3)})
        if len(slow) == 3:  # a busy machine may slow another pair down
            self.assertEqual(fabric["slow_in_common"], f"rank 2 on {self.spaces.addresses[2]}")
        self.assertTrue(all(pair["wrong"] == 0 and pair["kind"] == "network" for pair in fabric["pairs"]))
        for pair in fabric["pairs"]:
            if 2 in (pair["a"], pair["b"]):
                self.assertLess(pair["a_to_b_bytes_per_s"], 200e6 / 8 * 1.2)


if __name__ == "__main__":
    if why_no_sshd():
        print("skipped:", why_no_sshd())
        sys.exit(77)
    unittest.main()
