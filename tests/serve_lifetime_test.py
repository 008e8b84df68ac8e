"""Start and end of `fathom serve`: loading, invalid flags, draining, signals.

usage: serve_lifetime_test.py FATHOM
"""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from serve_process import BUNDLED, CHAT, DEADLINE_S, Server, endless, events, greedy, until

FATHOM = os.path.abspath(sys.argv.pop(1))


class Start(unittest.TestCase):
    def test_503_while_the_model_is_loaded(self):
        with Server(FATHOM, wait=False) as server:
            early = []
            while True:
                reply = server.post(CHAT, greedy())
                if reply.status == 200:
                    break
                early.append(reply)
            self.assertIn("6912", reply.json()["choices"][0]["message"]["content"])
            for reply in early:  # none if loading finished first
                self.assertEqual((reply.status, reply.error()["type"]), (503, "unavailable_error"))
                self.assertTrue(reply.headers["Retry-After"])
            print(f"{len(early)} answers while the model was loaded")

    def test_sigterm_while_the_model_is_loaded_ends_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "model"
            shutil.copytree(BUNDLED, model)
            os.remove(model / "tokenizer.json")
            os.mkfifo(model / "tokenizer.json")  # nobody writes: loading does not end
            for flags in ((), ("--role", "router", "--peer", "127.0.0.1:1")):
                with Server(FATHOM, *flags, model=model, wait=False) as server:
                    self.assertEqual(server.get("/health").status, 503)
                    server.signal()
                    self.assertEqual(server.wait(30), 0)
                    server.said("stopped before the model was ready")

    def test_one_body_may_be_larger_than_all_bodies_by_default(self):
        with Server(FATHOM, "--max-body-bytes", 300_000_000) as server:
            self.assertEqual(server.get("/health").status, 200)

    def test_a_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            result = subprocess.run([FATHOM, "serve", "--model", BUNDLED, "--port", str(port)], capture_output=True, text=True,
                                    timeout=DEADLINE_S)
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertEqual(result.stdout, "")
        for word in (f"127.0.0.1:{port}", "in use", "choose another port"):
            self.assertIn(word, result.stderr)

    def test_what_cannot_be_served(self):
        for flags, word in ((("--model", "/nowhere"), "config.json"), (("--host", "192.0.2.1"), "192.0.2.1"),
                            (("--max-num-seqs", "0"), "--max-num-seqs"), (("--kv-tokens", "8"), "")):
            result = subprocess.run([FATHOM, "serve", "--model", BUNDLED, "--port", "0", *flags] if "--model" not in flags
                                    else [FATHOM, "serve", "--port", "0", *flags],
                                    capture_output=True, text=True, timeout=DEADLINE_S)
            self.assertEqual(result.returncode, 5, (flags, result.stderr))
            self.assertIn(word, result.stderr)


class End(unittest.TestCase):
    def begun(self, server, **body):
        """A stream whose first event has arrived."""
        connection = server.connection()
        connection.request("POST", CHAT, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        first = answer.readline()
        self.assertTrue(first.startswith(b"data: "), first)
        return connection, answer

    def test_sigterm_drains(self):
        with Server(FATHOM, "--max-num-seqs", 2, "--drain-timeout", DEADLINE_S) as server:
            bodies = [{**endless(), "max_tokens": 1500 + i} for i in range(4)]  # two running, two in the queue
            streams = [self.begun(server, **body) for body in bodies]
            whole = concurrent.futures.ThreadPoolExecutor(1).submit(server.post, CHAT, {**endless(), "max_tokens": 600})
            data = json.dumps(greedy()).encode()
            late = server.socket(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
                                 f"{len(data)}\r\n\r\n".encode() + data[:9])
            idle = server.connection()
            idle.request("GET", "/health")
            idle.getresponse().read()
            until(lambda: sum(server.gauges()[f"requests_{kind}"] for kind in ("running", "waiting")) == 5, "all are there")

            server.signal()
            server.said("draining: 5 requests")
            late.sendall(data[9:])
            with late, late.makefile("rb") as reader:
                answer = reader.read()
            self.assertTrue(answer.startswith(b"HTTP/1.1 503 "), answer)
            self.assertIn(b"\r\nRetry-After: ", answer)
            self.assertIn(b"\r\nConnection: close\r\n", answer)
            with self.assertRaises(OSError):
                server.socket().close()
            self.assertEqual(idle.sock.recv(1), b"")  # closed at once
            idle.close()

            for body, (connection, answer) in zip(bodies, streams):
                seen = list(events(answer))
                self.assertEqual(seen[-1], "[DONE]")
                last = next(c for c in reversed(seen[:-1]) if c["choices"])
                self.assertEqual(last["choices"][0]["finish_reason"], "length")
                self.assertEqual(last["timings"]["predicted_n"], body["max_tokens"])
                answer.close()
                connection.close()
            self.assertEqual(whole.result(DEADLINE_S).json()["usage"]["completion_tokens"], 600)
            self.assertEqual(server.wait(), 0)
            server.said("all answered")

    def cut_short(self, server, end):
        """Calls `end` while the server writes a stream and a whole answer; neither client hangs."""
        connection, answer = self.begun(server, **endless())
        whole = concurrent.futures.ThreadPoolExecutor(1).submit(server.post, CHAT, endless())
        until(lambda: server.gauges()["requests_running"] == 2, "both are running")
        end()
        with self.assertRaises((OSError, http.client.IncompleteRead)):
            while answer.read(4096):
                pass
        answer.close()
        connection.close()
        self.assertIsNotNone(whole.exception(DEADLINE_S))

    FLAGS = ("--max-model-len", 131072, "--kv-tokens", 262144)

    def test_the_time_to_drain_is_limited(self):
        with Server(FATHOM, *self.FLAGS, "--drain-timeout", 1) as server:
            self.cut_short(server, server.signal)
            self.assertEqual(server.wait(), 0)
            server.said("some requests were cut short")

    def test_a_second_sigterm_ends_at_once(self):
        with Server(FATHOM, *self.FLAGS, "--drain-timeout", 86400) as server:
            def twice():
                server.signal()
                server.said("draining: 2 requests")
                server.signal(signal.SIGINT)
            self.cut_short(server, twice)
            self.assertEqual(server.wait(), 0)
            server.said("some requests were cut short")

    def test_a_killed_server_leaves_nobody_hanging(self):
        with Server(FATHOM, *self.FLAGS) as server:
            self.cut_short(server, lambda: server.signal(signal.SIGKILL))
            self.assertEqual(server.wait(), -signal.SIGKILL)

    def test_an_idle_server_ends(self):
        with contextlib.ExitStack() as stack:
            servers = []
            for number in (signal.SIGTERM, signal.SIGINT):  # both wait for the rest of a request at the same time
                servers.append(server := stack.enter_context(Server(FATHOM)))
                for sent in (b"", b"GET /hea"):
                    stack.enter_context(server.socket(sent))
                server.signal(number)
            for server in servers:
                self.assertEqual(server.wait(), 0)
                self.assertEqual(server.log[-1], "all answered\n")


class AsPid1(unittest.TestCase):
    """As in a container: in a PID namespace of its own, whose first process the kernel protects from signals that it
    does not handle, and makes the parent of orphans."""

    LAUNCHER = ("unshare", "--pid", "--fork", "--kill-child")

    def setUp(self):
        try:
            tried = subprocess.run([*self.LAUNCHER, "true"], capture_output=True, text=True, timeout=DEADLINE_S)
        except FileNotFoundError:
            self.skipTest("unshare is not installed")
        if tried.returncode != 0:
            self.skipTest(f"no PID namespace: {tried.stderr.strip()}")

    def test_sigterm_drains_and_no_zombie_is_left(self):
        with Server(FATHOM, "--drain-timeout", DEADLINE_S, launcher=self.LAUNCHER) as server:
            unshare = server.process.pid
            pid = int(pathlib.Path(f"/proc/{unshare}/task/{unshare}/children").read_text())
            self.assertIn("\nNSpid:\t", pathlib.Path(f"/proc/{pid}/status").read_text())
            self.assertRegex(pathlib.Path(f"/proc/{pid}/status").read_text(), r"NSpid:\t\d+\t1\n")

            def children():
                return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            # What `docker exec` and health checks leave behind: the shell ends before its child.
            orphans = subprocess.run(["nsenter", "--target", str(pid), "--pid", "sh", "-c", "sleep 0.5 & sleep 0.5 &"])
            self.assertEqual(orphans.returncode, 0)
            self.assertEqual(len(until(children, "orphans are the server's")), 2)
            until(lambda: not children(), "orphans that ended are gone")

            connection = server.connection()
            body = {**endless(), "max_tokens": 300, "stream": True}
            connection.request("POST", CHAT, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.readline()
            os.kill(pid, signal.SIGTERM)
            self.assertEqual(list(events(answer))[-1], "[DONE]")
            connection.close()
            self.assertEqual(server.wait(), 0)
            server.said("all answered")


class Quota(unittest.TestCase):
    def test_threads_are_those_of_the_cgroups_quota(self):
        """By cgroup version 1 or 2, where this process may make a group; elsewhere src/core/cpus_test.cpp has to do."""
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("one CPU is no more than a quota of one")
        v2 = pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()
        group = pathlib.Path("/sys/fs/cgroup") / ("" if v2 else "cpu") / f"fathom-{os.getpid()}"
        try:
            group.mkdir()
        except OSError as error:
            self.skipTest(f"no control group can be made: {error}")
        self.addCleanup(group.rmdir)
        try:
            for file, text in (("cpu.max", "100000 100000"),) if v2 else (("cpu.cfs_quota_us", "100000"),):
                (group / file).write_text(text)
        except OSError as error:
            self.skipTest(f"no quota can be set: {error}")
        script = f"echo $$ > {group / 'cgroup.procs'} && exec \"$@\""
        with Server(FATHOM, launcher=("sh", "-c", script, "sh")) as server:
            server.said("is ready on 1 thread:")
        with Server(FATHOM, "--threads", 2, launcher=("sh", "-c", script, "sh")) as server:
            server.said("is ready on 2 threads:")


unittest.main(verbosity=2)
