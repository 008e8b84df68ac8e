"""Requests that `fathom serve` rejects, and the error bodies.

usage: serve_refusals_test.py FATHOM
"""

import json
import os
import sys
import unittest

from serve_process import CHAT, COMPLETIONS, RESPONSES, Served, endless, greedy, until, user

Served.FATHOM = os.path.abspath(sys.argv.pop(1))


class Refusals(Served):
    FLAGS = ("--api-key", "secret", "--max-num-seqs", 1, "--max-queued-requests", 2, "--max-body-bytes", 100_000,
             "--allowed-origins", "https://page.example", "--max-model-len", 131072, "--kv-tokens", 131072)
    KEY = {"Authorization": "Bearer secret"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        plain = cls.server.request  # sends the key from now on, unless a test passes its own headers
        cls.server.request = lambda method, path, body=None, headers=(): plain(method, path, body, {**cls.KEY, **dict(headers)})

    def refused(self, status, method, path, body=None, headers=(), words=(), param=None):
        reply = (self.server.post(path, body, headers) if method == "POST" else
                 self.server.request(method, path, body, headers))
        self.assertEqual(reply.status, status, (path, body if body is None else str(body)[:300], reply.body))
        self.assertEqual(reply.headers["Content-Type"], "application/json")
        error = reply.error()
        self.assertEqual(error["code"], status)
        self.assertTrue(error["type"])
        if param:
            self.assertEqual(error["param"], param, error)
        for word in words:
            self.assertIn(word, error["message"])
        return reply

    def test_400_names_the_field(self):
        message = user("Hi")
        for param, body in {
                "messages": {}, "messages[0].role": {"messages": [{"role": "king", "content": "x"}]},
                "messages[0].content": {"messages": [{"role": "user", "content": 7}]},
                "messages[1].content[0].type": {"messages": message + [{"role": "user", "content": [{"type": "image_url"}]}]},
                "temperature": {"messages": message, "temperature": -1}, "top_p": {"messages": message, "top_p": 0},
                "top_k": {"messages": message, "top_k": 1.5}, "n": {"messages": message, "n": 10**6},
                "seed": {"messages": message, "seed": "x"}, "max_tokens": {"messages": message, "max_tokens": 0},
                "stop[1]": {"messages": message, "stop": ["a", 5]},
                "stop_token_ids[0]": {"messages": message, "stop_token_ids": [10**9]},
                "top_logprobs": {"messages": message, "logprobs": True, "top_logprobs": 21},
                "stream": {"messages": message, "stream": "yes"}, "stream_options": {"messages": message, "stream_options": {}},
                "tools[0].function.name": {"messages": message, "tools": [{"type": "function", "function": {}}]},
                "tool_choice": {"messages": message, "tool_choice": "required"},
                "reasoning_effort": {"messages": message, "reasoning_effort": "frantic"},
                "priority": {"messages": message, "priority": 2**40},
                "cache_salt": {"messages": message, "cache_salt": ""},
                "presence_penalty": {"messages": message, "presence_penalty": 1e308}}.items():
            self.refused(400, "POST", CHAT, body, param=param, words=(param.split("[")[0].split(".")[0],))
        self.refused(400, "POST", COMPLETIONS, {"prompt": [1, -1]}, param="prompt[1]")
        self.refused(400, "POST", COMPLETIONS, {}, param="prompt")
        self.refused(400, "POST", RESPONSES, {"input": 5}, param="input")
        self.refused(400, "POST", RESPONSES, {"input": "x", "previous_response_id": "resp_1"}, param="previous_response_id")
        self.refused(400, "POST", "/tokenize", {"prompt": 5}, param="prompt")
        self.refused(400, "POST", "/detokenize", {"tokens": [2**31]}, param="tokens[0]")
        schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "sandwich"}}}
        self.refused(400, "POST", CHAT, {"messages": message, "response_format": schema}, words=("#/type",),
                     param="response_format")

    def test_400_of_what_is_no_json(self):
        for body in (b"", b"{", b"[]", b"null", b"{}x", b'{"messages": NaN}', b'{"messages": [}', b"\xff\xfe", b'{"a": 1e999}',
                     b"[" * 50_000, b'{"a":' * 20_000, b'{"messages": "\xed\xa0\x80"}', b'{"messages": "\\ud800"}', b"\0"):
            self.refused(400, "POST", CHAT, body)

    def test_400_where_prompt_and_answer_do_not_fit(self):
        reply = self.refused(400, "POST", CHAT, {"messages": user("Hi"), "max_tokens": 131072}, param="max_tokens")
        self.assertEqual(reply.error()["type"], "exceed_context_size_error")
        self.refused(400, "POST", CHAT, {"messages": user("Hi"), "max_tokens": 131073}, param="max_tokens")

    def test_401_without_the_key(self):
        for key in ("", "Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "Basic secret", "secret"):
            for method, path, body in (("POST", CHAT, greedy()), ("GET", "/metrics", None), ("GET", "/v1/models", None),
                                       ("GET", "/stats", None)):
                reply = self.refused(401, method, path, body, {"Authorization": key}, words=("Bearer",))
                self.assertEqual(reply.headers["WWW-Authenticate"], "Bearer")
        for path in ("/health", "/ready", "/ping", "/", "/openapi.json"):
            self.assertEqual(self.server.get(path, Authorization="").status, 200)

    def test_404_405_415(self):
        self.refused(404, "GET", "/v1/nothing", words=("/v1/nothing",))
        self.refused(404, "GET", "/v1/models/other", words=("other", "tiny"))
        self.refused(404, "POST", CHAT, greedy(model="other"), param="model", words=("other", "tiny"))
        self.assertEqual(self.refused(405, "GET", CHAT, words=("GET",)).headers["Allow"], "POST, OPTIONS")
        self.assertIn("GET", self.refused(405, "POST", "/v1/models", {}).headers["Allow"])
        self.refused(415, "POST", CHAT, greedy(), {"Content-Type": "text/plain"}, words=("text/plain",))

    def test_413_and_431(self):
        self.refused(413, "POST", CHAT, greedy("x" * 100_001), words=("100000",))
        self.refused(431, "GET", "/health", headers={"X-Long": "x" * 20_000})
        # An announced length is enough for 413; so is a chunked body that does not end.
        with self.server.socket(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n".encode()) as one:
            self.assertIn(b" 413 ", one.recv(100))
        with self.server.socket(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()) as one:
            one.sendall(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
            try:
                while True:
                    one.sendall(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
            except OSError:  # the server closed the connection
                pass

    def test_cors(self):
        reply = self.server.request("OPTIONS", CHAT, headers={"Origin": "https://page.example", "Authorization": ""})
        self.assertEqual((reply.status, reply.headers["Access-Control-Allow-Origin"]), (204, "https://page.example"))
        self.assertIn("POST", reply.headers["Access-Control-Allow-Methods"])
        self.assertEqual(self.server.get("/health", Origin="https://page.example").headers["Access-Control-Allow-Origin"],
                         "https://page.example")
        self.assertIsNone(self.server.get("/health", Origin="https://other.example").headers["Access-Control-Allow-Origin"])

    def test_429_when_the_queue_is_full(self):
        held = []
        for running, waiting in ((1, 0), (1, 1), (1, 2)):
            connection = self.server.connection()
            connection.request("POST", CHAT, json.dumps(endless(stream=True)), {"Content-Type": "application/json", **self.KEY})
            held.append((connection, connection.getresponse()))
            until(lambda: (self.server.gauges()["requests_running"], self.server.gauges()["requests_waiting"]) ==
                  (running, waiting), f"{running} running, {waiting} waiting")
        self.assertEqual([answer.status for _, answer in held], [200] * 3)
        reply = self.refused(429, "POST", CHAT, endless())
        self.assertGreaterEqual(int(reply.headers["Retry-After"]), 1)
        self.refused(429, "POST", COMPLETIONS, {"prompt": "x", "stream": True})  # before any stream began
        held[1][0].close()  # frees one place in the queue
        held[1][1].close()
        until(lambda: self.server.gauges()["requests_waiting"] == 1, "a client in the queue has gone")
        self.refused(429, "POST", CHAT, endless(n=2))
        until(lambda: self.server.gauges()["requests_waiting"] == 1, "a refused call leaves nothing in the queue")
        for connection, answer in held:
            connection.close()
            answer.close()
        self.server.seconds_until_idle()
        self.assertEqual(self.server.post(CHAT, greedy(max_tokens=2)).status, 200)


class Slo(Served):
    FLAGS = ("--ttft-slo-ms", 60_000, "--max-model-len", 131072, "--kv-tokens", 131072)

    def test_429_beyond_the_requests_that_keep_the_target(self):
        """The first limit is 8, and changes after 16 first tokens."""
        held = []
        for _ in range(8):
            connection = self.server.connection()
            connection.request("POST", CHAT, json.dumps(endless(stream=True)), {"Content-Type": "application/json"})
            held.append((connection, connection.getresponse()))
        self.assertEqual([answer.status for _, answer in held], [200] * 8)
        reply = self.server.post(CHAT, greedy())
        self.assertEqual(reply.status, 429, reply.body)
        self.assertGreaterEqual(int(reply.headers["Retry-After"]), 1)
        self.assertIn("target of 60000 ms", reply.error()["message"])
        self.assertEqual((self.server.metric("fathom_slo_limit"), self.server.metric("fathom_slo_refused_total")), (8, 1))
        for connection, answer in held:
            connection.close()
            answer.close()
        self.server.seconds_until_idle()
        self.assertEqual(self.server.post(CHAT, greedy(max_tokens=2)).status, 200)


unittest.main(verbosity=2)
