"""Workers of a disaggregated server that are neither dead nor well: an engine that hangs while its server answers,
partitions, also one-way, connections that are reset, a worker that is ten times slower. No answer may be wrong, and
none may be lost (the table of docs/serving.md).

Usage: serve_faults_test.py FATHOM
"""

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
import unittest

from fault_proxy import FaultProxy
from frozen_thread import frozen_thread
from serve_process import BUNDLED, COMPLETIONS, events, until
from serve_workers import FLAGS, RECOVERY_S, Streamed, Workers, answer_of, asked, long_prompt, status

STALL_S = 1.5
STALL = ("--engine-iteration-timeout", STALL_S)


class Faults(Workers):
    """All faults heal, so the workers are those of the whole class, each behind a proxy; every test has a router."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prefill = cls.started("prefill")
        cls.decode = [cls.started("decode", "--peer", f"127.0.0.1:{cls.prefill.port}") for _ in range(2)]
        cls.proxies = [FaultProxy(worker.port) for worker in cls.decode]
        for proxy in cls.proxies:
            cls.addClassCleanup(proxy.close)

    @classmethod
    def started(cls, role, *flags):
        worker = cls.begun(role, *STALL, *flags)
        cls.addClassCleanup(worker.__exit__)
        return worker

    def setUp(self):
        self.router = self.begin("router", *STALL, *(f for proxy in self.proxies
                                                     for f in ("--peer", f"127.0.0.1:{proxy.port}")))
        self.ready(self.prefill, *self.decode, self.router)
        self.until_all("alive", "progressing")

    def tearDown(self):
        for proxy in self.proxies:
            proxy.heal()
        self.until_all("alive", "progressing")
        until(lambda: status(self.router)["journal"] == 0, "the journal is empty")
        self.no_leak(*self.decode, self.prefill)
        body = asked(1, 10)  # all is as before
        self.assertEqual(answer_of(self.router.ask(COMPLETIONS, **body)), answer_of(self.wanted(body)))

    def until_all(self, *bits):
        until(lambda: all(worker[bit] for worker in status(self.router)["workers"] for bit in bits),
              f"all workers are {bits}")

    def streaming(self, *bodies):
        """The streams, in the middle of their answers."""
        for body in bodies:
            self.wanted(body)
        return [stream.until_token(20) for stream in [Streamed(self.router, body) for body in bodies]]

    def busy(self):
        """The index of a decode worker that has work, and its entry in the router's status."""
        workers = status(self.router)["workers"]
        at = next(w for w, worker in enumerate(workers) if worker["requests"])
        return at, lambda: status(self.router)["workers"][at]

    @contextlib.contextmanager
    def hung_engine(self, server):
        """The engine's thread stands still; the threads that answer about the status do not."""
        try:
            for _ in range(20):
                with frozen_thread(server.process.pid, "fathom-engine"):
                    answers = threading.Event()
                    threading.Thread(target=lambda: status(server) and answers.set(), daemon=True).start()
                    if answers.wait(1):  # else it holds the lock that the status needs: it has to go on a bit
                        yield
                        return
        except PermissionError:
            self.skipTest("needs_permission: ptrace")
        self.fail("the engine's thread always holds the lock")

    # Health: alive, ready and progressing are three bits.

    def test_a_hung_engine_is_noticed_although_its_server_answers(self):
        body = asked(10, 1000)
        (stream,) = self.streaming(body)
        at, worker = self.busy()
        with self.hung_engine(self.decode[at]):
            begun = time.monotonic()
            self.check_stream(stream, body)
            self.assertLess(time.monotonic() - begun, STALL_S + RECOVERY_S)
            self.assertGreaterEqual(status(self.router)["moves"]["stalled"], 1)
            self.assertEqual([worker()[bit] for bit in ("alive", "ready", "progressing")], [True, True, False])
            self.assertGreater(status(self.decode[at])["stalled_s"], STALL_S)
            self.assertEqual(self.decode[at].get("/health").status, 503)
            self.assertEqual(self.decode[at].get("/live").status, 200)
            # New requests avoid it.
            self.assertEqual(answer_of(self.router.ask(COMPLETIONS, **asked(11, 10))),
                             answer_of(self.wanted(asked(11, 10))))
            self.assertEqual(worker()["requests"], 0)
        until(lambda: worker()["progressing"], "the engine goes on")
        self.assertEqual(self.decode[at].get("/health").status, 200)

    def test_a_hung_prefill_engine_loses_its_leases(self):
        """Its job renews no lease then, and later prompts are refused at once."""
        body, other = ({**asked(n), "prompt": long_prompt(n, 45)} for n in (20, 21))
        self.wanted(body), self.wanted(other)
        stream = Streamed(self.router, body)
        until(lambda: status(self.prefill)["prefill_jobs"], "a prompt is computed for a decode worker")
        with self.hung_engine(self.prefill):
            begun = time.monotonic()
            self.check_stream(stream, body)
            self.assertLess(time.monotonic() - begun, STALL_S + RECOVERY_S)
            self.assertEqual(self.prefill.get("/health").status, 503)
            begun = time.monotonic()
            self.assertEqual(answer_of(self.router.ask(COMPLETIONS, **other)), answer_of(self.wanted(other)))
            self.assertLess(time.monotonic() - begun, RECOVERY_S)

    # Partitions between the router and a worker that lives.

    def takeover(self, first, *directions, prefix=b""):
        """The stream goes on elsewhere while the worker's requests or answers are held, and late tokens are refused. The
        network is so slow that no answer is whole before that."""
        for proxy in self.proxies:
            proxy.answer_bytes_per_s = 30_000
        bodies = asked(first, 400), asked(first + 1, 400, temperature=1, seed=3)
        streams = self.streaming(*bodies)
        at, worker = self.busy()
        self.proxies[at].hold(*directions, prefix=prefix)
        until(lambda: not worker()["alive"], "the worker counts as dead", RECOVERY_S)
        for stream, body in zip(streams, bodies):
            self.check_stream(stream, body)
        self.assertGreaterEqual(status(self.router)["moves"]["dead"], 1)
        self.assertEqual(worker()["requests"], 0)
        for proxy in self.proxies:
            proxy.heal()
        until(lambda: worker()["alive"], "the worker is back, without a restart", RECOVERY_S)
        return status(self.router)

    def test_only_the_status_is_cut_off(self):
        """F3: tokens of the old attempt still come, and are refused after the takeover."""
        self.assertGreater(self.takeover(30, "request", prefix=b"GET /worker/status")["dropped_events"], 0)

    def test_a_partition_heals_without_a_restart(self):
        """F4: what the partition held arrives late, and is refused."""
        self.takeover(40, "request", "answer")
        until(lambda: status(self.router)["dropped_events"], "late tokens are refused")

    def test_requests_arrive_and_answers_do_not(self):
        """F5."""
        self.takeover(50, "answer")
        until(lambda: status(self.router)["dropped_events"], "late tokens are refused")

    def test_answers_arrive_and_requests_do_not(self):
        """F5, the other way: the attempt is not cancelled before the partition heals."""
        self.assertGreater(self.takeover(60, "request")["dropped_events"], 0)

    def test_connections_are_reset(self):
        """Again and again, in the middle of an answer that curl reads."""
        body = asked(70, 400)
        wanted = answer_of(self.wanted(body))
        with subprocess.Popen(["curl", "-sN", self.router.url + COMPLETIONS, "-H", "Content-Type: application/json",
                               "-d", json.dumps({**body, "stream": True})], stdout=subprocess.PIPE) as curl:
            tokens, text, resets = 0, "", 0
            for event in events(curl.stdout):
                if event == "[DONE]":
                    break
                (choice,) = event["choices"]
                text += choice["text"]
                tokens += len((choice["logprobs"] or {}).get("tokens", []))
                if resets < 3 and tokens >= 50 * (resets + 1):
                    resets += 1
                    for proxy in self.proxies:
                        proxy.reset()
        self.assertEqual((text, tokens, curl.returncode), (wanted[0], len(wanted[2]), 0))
        self.assertGreaterEqual(status(self.router)["moves"]["broken"], 1)

    # F6.

    def test_a_slow_worker_is_ejected(self):
        """It gets a tenth of the time. Its requests move, each once, and new ones avoid it."""
        bodies = [asked(80 + i, 600) for i in range(4)]
        streams = self.streaming(*bodies)
        at, worker = self.busy()
        done = threading.Event()

        def slow_down():
            while not done.is_set():
                self.decode[at].signal(signal.SIGSTOP)
                time.sleep(0.09)
                self.decode[at].signal(signal.SIGCONT)
                time.sleep(0.01)

        slowing = threading.Thread(target=slow_down, daemon=True)
        slowing.start()
        try:
            for stream, body in zip(streams, bodies):
                self.check_stream(stream, body)
            self.assertTrue(worker()["ejected"])
            for number in range(90, 94):
                self.assertEqual(answer_of(self.router.ask(COMPLETIONS, **asked(number, 10))),
                                 answer_of(self.wanted(asked(number, 10))))
                self.assertEqual(worker()["requests"], 0)
            said = status(self.router)
            self.assertGreaterEqual(said["ejections"], 1)
            self.assertLessEqual(said["replays"], len(bodies), "no retry storm")
        finally:
            done.set()
            slowing.join()
            self.decode[at].signal(signal.SIGCONT)


if __name__ == "__main__":
    Faults.FATHOM = sys.argv.pop(1)
    assert BUNDLED.exists()
    unittest.main(verbosity=2)
