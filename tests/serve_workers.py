"""Prefill workers, decode workers and routers as processes, and one engine whose answers theirs must equal: for the
tests of the disaggregated server."""

import json
import threading
import unittest

from serve_process import COMPLETIONS, Server, until

# A prompt that is offloaded (256 tokens and more), each with another beginning.
FLAGS = ("--threads", 1, "--max-model-len", 4096, "--kv-tokens", 16384, "--max-num-batched-tokens", 64)
RECOVERY_S = 5


def long_prompt(number, sentences=15):
    """About 20 tokens a sentence; prompts of different numbers share no block."""
    return f"Story {number}. " + " ".join(f"The {number + i * i} birds saw {i} red trees." for i in range(sentences))


def asked(number, tokens=60, **more):
    return {"prompt": long_prompt(number), "max_tokens": tokens, "ignore_eos": True,
            "temperature": 0, "logprobs": 2, **more}


def answer_of(reply):
    choice = reply["choices"][0]
    return choice["text"], choice["finish_reason"], choice["logprobs"]["tokens"], choice["logprobs"]["token_logprobs"]


class Streamed(threading.Thread):
    """A streamed completion, read in the background."""

    def __init__(self, server, body):
        super().__init__(daemon=True)
        self.server, self.body = server, body
        self.text, self.tokens, self.finish, self.failure = "", 0, None, None
        self.start()

    def run(self):
        try:
            for event in self.server.stream(COMPLETIONS, **self.body):
                if event == "[DONE]":
                    return
                if "error" in event:
                    self.failure = event["error"]
                    continue
                for choice in event["choices"]:
                    self.text += choice["text"]
                    self.tokens += len((choice.get("logprobs") or {}).get("tokens", []))
                    self.finish = choice["finish_reason"] or self.finish
        except Exception as error:  # the thread's failure is the test's
            self.failure = error

    def until_token(self, count):
        until(lambda: self.tokens >= count or self.failure or self.finish, f"{count} tokens")
        return self


def status(server):
    return server.get("/worker/status").json()


class Workers(unittest.TestCase):
    """One engine as the reference; workers and routers are begun by the tests."""
    FATHOM = ""
    expected = {}

    @classmethod
    def setUpClass(cls):
        cls.reference = Server(cls.FATHOM, *FLAGS)
        cls.addClassCleanup(cls.reference.__exit__)

    @classmethod
    def begun(cls, role, *flags):
        return Server(cls.FATHOM, *(() if role == "router" else FLAGS), "--role", role, *flags, wait=False)

    def begin(self, role, *flags):
        server = self.begun(role, *flags)
        self.addCleanup(server.__exit__)
        return server

    def ready(self, *servers):
        for server in servers:
            until(lambda: server.get("/ready").status == 200, "ready")

    def pair(self, *flags, decoders=1):
        """(prefill, decoders, router): each decode worker asks the prefill worker; the router knows all."""
        prefill = self.begin("prefill")
        decode = [self.begin("decode", "--peer", f"127.0.0.1:{prefill.port}", *flags) for _ in range(decoders)]
        router = self.begin("router", *(f for d in [*decode, prefill] for f in ("--peer", f"127.0.0.1:{d.port}")))
        self.ready(prefill, *decode, router)
        until(lambda: all(w["alive"] for w in status(router)["workers"]), "the router knows its workers")
        return prefill, decode, router

    def wanted(self, body):
        key = json.dumps(body, sort_keys=True)
        if key not in self.expected:
            self.expected[key] = self.reference.ask(COMPLETIONS, **body)
        return self.expected[key]

    def check_stream(self, stream, body):
        stream.join(60)
        self.assertFalse(stream.is_alive(), "the stream does not end")
        self.assertIsNone(stream.failure)
        text, finish, tokens, _ = answer_of(self.wanted(body))
        self.assertEqual((stream.text, stream.finish, stream.tokens), (text, finish, len(tokens)))

    def replayed(self, router, before):
        until(lambda: status(router)["replays"] > before, "requests go on at another worker", RECOVERY_S)

    def no_leak(self, *servers):
        for server in servers:
            server.seconds_until_idle()
            offload = status(server).get("offload")
            if offload:
                until(lambda: (s := status(server)["offload"])["landing_pages_free"] == s["landing_pages"],
                      "every landing page is free")
