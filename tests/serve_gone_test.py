"""Killed clients of `fathom serve` leave no state behind.

usage: serve_gone_test.py FATHOM
"""

import json
import os
import subprocess
import sys
import time
import unittest

from serve_process import CHAT, Server, endless, greedy, until, user

FATHOM = os.path.abspath(sys.argv.pop(1))

# A client process: connects, sends its standard input, prints "sent", then does what the argument says.
CLIENT = """
import socket, sys, time
port, then, data = int(sys.argv[1]), sys.argv[2], sys.stdin.buffer.read()
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
s.connect(("127.0.0.1", port))
s.sendall(data)
if then == "half-close": s.shutdown(socket.SHUT_WR)
print("sent", flush=True)
if then == "read slowly":
    while s.recv(64): time.sleep(0.02)
time.sleep(1000)
"""


class Gone(unittest.TestCase):
    """Kills clients in every possible state."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(FATHOM, "--max-num-seqs", 2, "--max-model-len", 131072, "--kv-tokens", 262144)
        cls.addClassCleanup(cls.server.__exit__)
        cls.longest = 0

    @classmethod
    def tearDownClass(cls):
        print(f"idle again within {cls.longest:.3f} s")

    def setUp(self):
        self.server.seconds_until_idle()

    def head(self, body, **headers):
        data = json.dumps(body).encode() if not isinstance(body, bytes) else body
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        return (f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{more}"
                f"Content-Length: {len(data)}\r\n\r\n").encode() + data

    def client(self, data, then="wait"):
        process = subprocess.Popen([sys.executable, "-c", CLIENT, str(self.server.port), then], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE)
        process.stdin.write(data)
        process.stdin.close()
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b"sent\n")
        return process

    def curl(self, body):
        process = subprocess.Popen(["curl", "--silent", "--no-buffer", "--json", json.dumps(body), self.server.url + CHAT],
                                   stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def reached(self, what, **gauges):
        def now():
            seen = self.server.gauges()
            return all(seen[name] == value for name, value in gauges.items())
        until(now, what)

    def kill(self, *processes):
        for process in processes:
            process.kill()
            process.wait()

    def idle(self):
        """Waits until the server is idle, after kills or by itself."""
        type(self).longest = max(self.longest, self.server.seconds_until_idle())
        until(lambda: self.server.metric("fathom_http_connections") == 1, "only who asks is connected")
        # The server still works.
        self.assertEqual(self.server.ask(CHAT, **greedy(max_tokens=2))["usage"]["completion_tokens"], 2)

    def test_in_decode(self):
        for body in (endless(stream=True), endless(), endless(n=2), endless(stream=True, n=2)):
            client = self.curl(body)
            before = self.server.metric("fathom_generated_tokens_total")
            until(lambda: self.server.metric("fathom_generated_tokens_total") > before, "tokens are written")
            if body.get("stream"):
                self.assertTrue(client.stdout.readline().startswith(b"data: "))
            self.kill(client)
            self.idle()

    def test_in_prefill(self):
        before = self.server.metric("fathom_generated_tokens_total")
        number = time.time_ns()  # no cached prefix
        for stream in (True, False):
            prompt = f"{number}{stream} " + "The garden is green. " * 12_000
            client = self.client(self.head({"messages": user(prompt), "max_tokens": 5, "stream": stream}))
            until(lambda: self.server.gauges()["kv_pages_in_use"] > 20, "the prompt is being read")
            self.kill(client)
            self.server.seconds_until_idle()
        self.assertEqual(self.server.metric("fathom_generated_tokens_total"), before, "the prompt was too short for this test")
        self.idle()

    def test_in_the_queue(self):
        running = [self.curl(endless()) for _ in range(2)]
        self.reached("two run", requests_running=2)
        queued = [self.curl(endless(stream=stream)) for stream in (True, False, True)]
        self.reached("three wait", requests_running=2, requests_waiting=3)
        for left in (2, 1, 0):
            self.kill(queued.pop())
            self.reached(f"{left} wait", requests_running=2, requests_waiting=left)
        self.kill(*running)
        self.idle()

    def test_reading_slowly(self):
        client = self.client(self.head(endless(stream=True, logprobs=True, top_logprobs=20)), "read slowly")
        before = self.server.metric("fathom_generated_tokens_total")
        until(lambda: self.server.metric("fathom_generated_tokens_total") > before + 100, "more is written than is read")
        self.kill(client)
        self.idle()

    def test_not_reading(self):
        # This client is not killed: the server drops it when its unread output exceeds the buffer.
        clients = [self.client(self.head(endless(stream=True, logprobs=True, top_logprobs=20))) for _ in range(2)]
        self.server.seconds_until_idle()
        self.kill(*clients)

    def test_half_closed(self):
        # The server does not wait for a client that closed: it discards the unsent rest.
        clients = [self.client(self.head(endless(stream=stream)), "half-close") for stream in (True, False)]
        self.idle()
        self.kill(*clients)

    def test_who_sent_the_next_request_too(self):
        following = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        for stream in (True, False):
            for count in (1, 1000):
                client = self.client(self.head(endless(stream=stream)) + following * count)
                self.reached("it runs", requests_running=1)
                self.kill(client)
                self.idle()

    def test_before_the_request_is_whole(self):
        whole = self.head(endless(stream=True))
        for data in (b"", b"POS", whole[:40], whole[:-1], self.head(b"x" * 1000)[:-500]):
            client = self.client(data)
            self.kill(client)
        self.idle()

    def test_many_at_once(self):
        clients = [self.curl(endless(stream=i % 2 == 0, n=1 + i % 3)) for i in range(12)]
        until(lambda: self.server.gauges()["requests_waiting"] >= 20, "most wait")
        self.kill(*clients)
        self.idle()
        aborted = self.server.metrics()["fathom_requests_finished_total"]
        self.assertGreaterEqual(sum(v for labels, v in aborted.items() if ("finished_reason", "abort") in labels), 22)


unittest.main(verbosity=2)
