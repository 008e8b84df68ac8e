"""Workers that share a KV cache pool, as processes: the answers of one engine, whatever happens to the pool.

Usage: serve_kv_pool_test.py FATHOM
"""

import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from serve_process import BUNDLED, COMPLETIONS, Server, until
from serve_workers import FLAGS, Workers, answer_of, asked, long_prompt

DEADLINE_S = 1  # src/serve/kv_connector.h
GRACE_S = 4     # beside it, on a busy machine


def lookups(worker):
    return {dict(labels)["result"]: int(value)
            for labels, value in worker.metrics()["fathom_kv_connector_lookups_total"].items()}


def counted(worker, what):
    return int(worker.metric(f"fathom_kv_connector_{what}"))


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


class KvPool(Workers):
    def pool(self, size="256MiB", port=0, *flags):
        pool = Server(self.FATHOM, "--bytes", size, *flags, verb=("kv-pool",), wait=False, port=port)
        self.addCleanup(pool.__exit__)
        return pool

    def worker(self, pool, *flags, base=FLAGS, **more):
        worker = Server(self.FATHOM, *base, "--kv-pool", f"127.0.0.1:{pool.port}", *flags, **more)
        self.addCleanup(worker.__exit__)
        return worker

    def answers_as_one(self, worker, body):
        reply = worker.ask(COMPLETIONS, **body)
        self.assertEqual(answer_of(reply), answer_of(self.wanted(body)))
        return reply

    def stored(self, worker, prompts):
        until(lambda: counted(worker, "stored_prompts_total") >= prompts, f"{prompts} prompts are in the pool")

    def test_a_prompt_that_one_computed_is_found_by_another(self):
        pool = self.pool()
        first, second = self.worker(pool), self.worker(pool)
        body = asked(1)
        self.assertEqual(cached(self.answers_as_one(first, body)), 0)
        self.stored(first, 1)
        reply = self.answers_as_one(second, body)
        self.assertEqual(cached(reply), (reply["usage"]["prompt_tokens"] - 1) // 16 * 16)
        self.assertEqual(lookups(second), {"loaded": 1, "missed": 0, "unneeded": 0, "failed": 0})
        by_source = {dict(labels)["source"]: value for labels, value
                     in second.metrics()["fathom_prompt_tokens_by_source_total"].items()}
        self.assertEqual(by_source["external_kv_transfer"], cached(reply))
        self.assertLess(by_source["local_compute"], 17)
        # The pool says the same.
        self.assertEqual(pool.metric("fathom_kv_pool_loaded_bytes_total"), counted(second, "loaded_bytes_total"))
        self.assertEqual(pool.metric("fathom_kv_pool_blocks"), counted(first, "stored_blocks_total"))
        self.assertLess(pool.metric("fathom_kv_pool_bytes"), 256 << 20)
        # What was answered goes on: a longer prompt takes the common part, and brings what is new.
        longer = {**body, "prompt": body["prompt"] + " " + long_prompt(50, 6)}
        self.assertGreater(cached(self.answers_as_one(first, longer)), 0)
        self.stored(first, 2)
        third = self.worker(pool)
        reply = self.answers_as_one(third, longer)
        self.assertEqual(cached(reply), (reply["usage"]["prompt_tokens"] - 1) // 16 * 16)
        # A salt of its own shares nothing.
        self.assertEqual(cached(self.answers_as_one(third, {**asked(1), "cache_salt": "mine"})), 0)

    def test_a_worker_finds_what_it_has_evicted(self):
        pool = self.pool()
        small = self.worker(pool, base=("--threads", 1, "--max-model-len", 1024, "--kv-tokens", 1024))
        bodies = [asked(10 + i, 20) for i in range(6)]
        for i, body in enumerate(bodies):
            self.answers_as_one(small, body)
            self.stored(small, i + 1)
        before = lookups(small)["loaded"]
        for body in bodies:
            self.assertGreater(cached(self.answers_as_one(small, body)), 200)
        self.assertGreaterEqual(lookups(small)["loaded"] - before, 5)

    def test_a_pool_that_is_killed_and_comes_back_under_load(self):
        pool = self.pool()
        workers = [self.worker(pool), self.worker(pool)]
        bodies = [asked(20 + i, 10) for i in range(4)]
        for body in bodies:
            self.wanted(body)
        stop, failures, answered = threading.Event(), [], [0]

        def load(worker, number):
            turn = number
            while not stop.is_set():
                body = bodies[turn % 4]
                # A salt of each round keeps the worker's own cache out of the way.
                try:
                    reply = worker.ask(COMPLETIONS, **body, cache_salt=str(turn // 8))
                    if answer_of(reply) != answer_of(self.wanted(body)):
                        raise AssertionError("another answer")
                except Exception as error:  # the thread's failure is the test's
                    failures.append(error)
                    return
                answered[0] += 1
                turn += 1

        threads = [threading.Thread(target=load, args=(workers[i % 2], i)) for i in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(2):
            loaded = pool.metric("fathom_kv_pool_loaded_blocks_total")
            until(lambda: failures or pool.metric("fathom_kv_pool_loaded_blocks_total") > loaded, "blocks are shared")
            pool.signal(signal.SIGKILL)
            pool.wait()
            until(lambda: failures or all(counted(w, "up") == 0 for w in workers), "the workers notice")
            before = answered[0]
            until(lambda: failures or answered[0] >= before + 4, "answers go on without a pool")
            pool = self.pool(port=pool.port)
            until(lambda: failures or all(counted(w, "up") for w in workers), "the workers have found it again")
        until(lambda: failures or pool.metric("fathom_kv_pool_loaded_blocks_total"), "blocks are shared again")
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        for worker in workers:
            worker.seconds_until_idle()
            warned = [line for line in worker.log if "the KV cache pool is away" in line]
            self.assertEqual(len(warned), counted(worker, "outages_total"))

    def test_a_stopped_pool_costs_a_deadline_and_one_warning(self):
        pool = self.pool()
        worker = self.worker(pool)
        bodies = [asked(30 + i, 5) for i in range(4)]
        for body in bodies:
            self.wanted(body)
        self.answers_as_one(worker, bodies[0])
        self.stored(worker, 1)  # or the write would meet the stopped pool
        pool.signal(signal.SIGSTOP)
        begin = time.monotonic()
        self.answers_as_one(worker, bodies[1])
        self.assertGreater(time.monotonic() - begin, DEADLINE_S * 0.9)
        self.assertLess(time.monotonic() - begin, DEADLINE_S + GRACE_S)
        for body in bodies[2:]:  # no more waiting
            self.answers_as_one(worker, body)
        self.assertEqual(lookups(worker)["failed"], 1)
        self.assertEqual(counted(worker, "outages_total"), 1)
        self.assertEqual(sum("is away" in line for line in worker.log), 1, worker.log)
        pool.signal(signal.SIGCONT)
        until(lambda: counted(worker, "up"), "the worker has found it again")
        self.answers_as_one(worker, asked(34, 5))
        other = self.worker(pool)
        self.stored(worker, 2)
        self.assertGreater(cached(self.answers_as_one(other, asked(34, 5))), 200)

    def test_another_model_shares_nothing(self):
        pool = self.pool()
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([self.FATHOM, "model", "make", "--shape", "tiny", "--tokenizer", "--seed", "5", folder],
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            ours, theirs = self.worker(pool), self.worker(pool, model=folder)
            alone = Server(self.FATHOM, *FLAGS, model=folder)
            self.addCleanup(alone.__exit__)
            ids = list(range(3, 300))  # the same tokens for both
            body = {**asked(0, 10), "prompt": ids}
            self.answers_as_one(ours, body)
            self.stored(ours, 1)
            for turn in range(2):
                self.assertEqual(answer_of(theirs.ask(COMPLETIONS, **body)), answer_of(alone.ask(COMPLETIONS, **body)))
            self.assertEqual(lookups(theirs)["loaded"], 0)
            # Other types of the same weights do not fit either.
            rounded = self.worker(pool, "--block-size", 32)
            self.answers_as_one(rounded, body)
            self.assertEqual(lookups(rounded)["loaded"], 0)

    def test_a_budget_of_one_block(self):
        pool = self.pool(24_576 + 160)  # 3 layers, keys and values, 16 positions of 2 heads of 32 floats
        workers = [self.worker(pool), self.worker(pool)]
        for turn in range(2):
            for worker in workers:
                for number in (40, 41):
                    self.answers_as_one(worker, asked(number, 5))
        for worker in workers:
            self.stored(worker, 4)
        self.assertEqual(pool.metric("fathom_kv_pool_blocks"), 1)
        self.assertLessEqual(pool.metric("fathom_kv_pool_bytes"), 24_576 + 160)
        self.assertGreater(pool.metric("fathom_kv_pool_evicted_blocks_total"), 50)

    def test_a_client_that_dies_while_it_writes_leaves_nothing(self):
        pool = self.pool()
        seed = pool.get("/kv/hello").json()["seed"]
        block = struct.pack("<4Q", 1, 2, 1000, 0) + bytes(1000)
        body = struct.pack("<8sQ", b"fkvpool1", seed) + block
        head = f"POST /kv/put HTTP/1.1\r\nHost: pool\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        for cut in (0, 10, 60, len(body) - 1):
            pool.socket(head + body[:cut]).close()
        self.assertEqual(pool.post("/kv/put", body).status, 400, "a wrong checksum")
        self.assertEqual(pool.metric("fathom_kv_pool_blocks"), 0)
        self.assertEqual(pool.metric("fathom_kv_pool_damaged_blocks_total"), 1)
        # A worker that is killed while it writes; what it brought before is whole.
        victim, other = self.worker(pool), self.worker(pool)
        body = {**asked(60, 2), "prompt": long_prompt(60, 120)}
        self.wanted(body)
        victim.ask(COMPLETIONS, **body)
        until(lambda: pool.metric("fathom_kv_pool_blocks"), "some blocks are there")
        victim.signal(signal.SIGKILL)
        self.answers_as_one(other, body)
        self.assertEqual(lookups(other)["failed"], 0)

    def test_who_does_not_fit_is_told_at_the_start(self):
        pool = self.pool("256MiB", 0, "--api-key", "secret")
        small = self.pool(1000)
        for flags, words in (((f"127.0.0.1:{pool.port}",), "--api-key"),
                             ((f"127.0.0.1:{small.port}",), "--bytes"),
                             ((f"127.0.0.1:{self.reference.port}",), "no KV cache pool"),
                             ((f"127.0.0.1:{pool.port}", "--no-prefix-cache"), "--kv-pool"),
                             ((f"127.0.0.1:{pool.port}", "--role", "router", "--peer", "127.0.0.1:1"), "router"),
                             (("nowhere:port",), "port")):
            ended = subprocess.run([self.FATHOM, "serve", "--model", BUNDLED, "--port", "0", *map(str, FLAGS),
                                    "--kv-pool", *flags], capture_output=True, text=True, timeout=60)
            self.assertEqual(ended.returncode, 5, ended.stderr)
            self.assertIn(words, ended.stderr)
        self.assertEqual(pool.get("/metrics").status, 401)
        served = self.worker(pool, "--api-key", "secret", wait=False)
        until(lambda: served.get("/ready").status == 200, "ready")
        # Where nobody listens yet, it starts, and the pool may come.
        port = small.port
        small.__exit__()
        early = self.worker(small)
        early.said("will be used when it does")
        self.pool(port=port)
        until(lambda: counted(early, "up"), "the worker has found the pool")

    def test_prefill_and_decode_workers_with_a_pool(self):
        """A decode worker asks the pool first, and its prefill worker for what is left."""
        pool = self.pool()
        at = ("--kv-pool", f"127.0.0.1:{pool.port}")
        prefill, decode, router = self.pair(*at, decoders=2)
        for _ in range(2):
            for number in (70, 71):
                self.assertEqual(answer_of(router.ask(COMPLETIONS, **asked(number, 10))),
                                 answer_of(self.wanted(asked(number, 10))))
        until(lambda: sum(counted(d, "stored_prompts_total") for d in decode) >= 4, "prompts are in the pool")
        alone = self.worker(pool)
        self.assertGreater(cached(self.answers_as_one(alone, asked(70, 10))), 200)
        self.no_leak(prefill, *decode)


if __name__ == "__main__":
    Workers.FATHOM = sys.argv.pop(1)
    unittest.main(verbosity=2)
