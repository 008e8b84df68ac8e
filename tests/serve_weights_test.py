"""The weights of a running `fathom serve` are replaced: POST /update_weights_from_disk.

usage: serve_weights_test.py FATHOM
"""

import http.client
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

from serve_process import BUNDLED, CHAT, COMPLETIONS, DEADLINE_S, RESPONSES, Server, greedy, until

FATHOM = os.path.abspath(sys.argv.pop(1))
KEY = {"Authorization": "Bearer admin"}
UPDATE = "/update_weights_from_disk"
FLAGS = ("--max-model-len", 65536, "--kv-tokens", 131072)
ENDLESS = {"prompt": [5, 6, 7], "max_tokens": 60000, "temperature": 0, "ignore_eos": True}
QUESTIONS = [{"prompt": prompt, "max_tokens": 24, "ignore_eos": True, **more}
             for prompt in ([1, 2, 3], list(range(40, 100)), [9] * 33)
             for more in ({"temperature": 0}, {"temperature": 2, "seed": 3})]


def answers(server):
    return [server.ask(COMPLETIONS, **question)["choices"][0]["text"] for question in QUESTIONS]


def update(server, folder, **more):
    return server.post(UPDATE, {"model_path": str(folder), **more}, KEY)


class Stream:
    """Reads an endless completion in a thread: its text, by version of the weights."""

    def __init__(self, server, **body):
        self.text, self.finish = {}, None
        self.versions = []
        self.events = server.stream(COMPLETIONS, **body)
        self.leave = False
        self.thread = threading.Thread(target=self.read)
        self.thread.start()
        until(lambda: self.versions and self.text[self.versions[0]], "the stream has begun")

    def read(self):
        try:
            self.read_events()
        except (OSError, http.client.HTTPException):
            self.finish = "cut"

    def read_events(self):
        for event in self.events:
            if event == "[DONE]":
                return
            if "metadata" in event:
                self.text[event["metadata"]["weight_version"]] = ""
                self.versions.append(event["metadata"]["weight_version"])
            (choice,) = event["choices"]
            self.text[self.versions[-1]] += choice["text"]
            self.finish = choice["finish_reason"]
            if self.leave:
                return self.events.close()

    def end(self, leave=False):
        self.leave = leave
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive(), "the stream does not end"


class Weights(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.a, cls.b = cls.folder / "a", cls.folder / "b"
        cls.expected, cls.endless = {}, {}
        for seed, model in enumerate((cls.a, cls.b)):
            subprocess.run([FATHOM, "model", "make", "--tokenizer", "--seed", str(seed), str(model)], check=True,
                           capture_output=True, timeout=DEADLINE_S)
            with Server(FATHOM, *FLAGS, model=model) as server:
                cls.expected[model.name] = answers(server)
                cls.endless[model.name] = server.ask(COMPLETIONS, **{**ENDLESS, "max_tokens": 3000})["choices"][0]["text"]
        assert cls.expected["a"] != cls.expected["b"]

    def serve(self, *flags, model=None):
        return Server(FATHOM, *FLAGS, "--admin-api-key", "admin", "--weight-version", "a", *flags, model=model or self.a)

    def assert_serves(self, server, version, model):
        self.assertEqual(answers(server), self.expected[model])
        self.assertEqual(server.get("/stats").json()["weight_version"], version)
        (labels,) = server.metrics()["fathom_weights_info"]
        self.assertIn(("weight_version", version), labels)
        reply = server.ask(COMPLETIONS, **QUESTIONS[0])
        self.assertEqual(reply["metadata"], {"weight_version": version})

    def test_answers_are_then_those_of_the_new_model(self):
        with self.serve() as server:
            self.assert_serves(server, "a", "a")
            curl = subprocess.run(
                ["curl", "--silent", "--show-error", "--fail", "--max-time", str(DEADLINE_S), "-H", "Authorization: Bearer admin",
                 "--json", json.dumps({"model_path": str(self.b), "weight_version": "step 2"}), server.url + UPDATE],
                capture_output=True, text=True)
            self.assertEqual(curl.returncode, 0, curl.stderr)
            self.assertEqual(json.loads(curl.stdout),
                             {"success": True, "message": "the weights are in use", "weight_version": "step 2"})
            self.assert_serves(server, "step 2", "b")
            self.assertEqual(update(server, self.a).status, 200)  # the version is the folder
            self.assert_serves(server, str(self.a), "a")
            self.assertEqual(server.metric("fathom_weight_updates_total"), 2)
            # The trainer's files are not read any more.
            again = self.folder / "again"
            shutil.copytree(self.b, again)
            self.assertEqual(update(server, again, weight_version="b").status, 200)
            (again / "model.safetensors").write_bytes(b"")
            self.assert_serves(server, "b", "b")

    def test_wait_lets_requests_end_first(self):
        with self.serve() as server:
            stream = Stream(server, **{**ENDLESS, "max_tokens": 3000})
            self.assertEqual(update(server, self.b, weight_version="b", mode="wait").status, 200)
            stream.end()
            self.assertEqual((stream.text, stream.finish), ({"a": self.endless["a"]}, "length"))
            self.assert_serves(server, "b", "b")

    def test_abort_ends_requests_with_what_they_have(self):
        with self.serve() as server:
            stream = Stream(server, **ENDLESS)
            self.assertEqual(update(server, self.b, weight_version="b", mode="abort").status, 200)
            stream.end()
            self.assertEqual((list(stream.text), stream.finish), (["a"], "abort"))
            self.same_beginning(stream.text["a"], self.endless["a"])
            self.assert_serves(server, "b", "b")

    def test_keep_and_retract_go_on(self):
        for mode in ("keep", "retract"):
            with self.subTest(mode), self.serve() as server:
                stream = Stream(server, **ENDLESS)
                self.assertEqual(update(server, self.b, weight_version="b", mode=mode).status, 200)
                until(lambda: len(stream.text.get("b", "")) > 100, "the stream goes on")
                stream.end(leave=True)
                self.assertEqual(stream.versions, ["a", "b"])
                self.same_beginning(stream.text["a"], self.endless["a"])
                server.seconds_until_idle()
                self.assert_serves(server, "b", "b")

    def same_beginning(self, one, other):
        length = min(len(one), len(other))
        self.assertGreater(length, 0)
        self.assertEqual(one[:length], other[:length])

    def test_bad_weights_leave_the_old_ones_in_use(self):
        bad = self.folder / "bad"
        shutil.copytree(self.b, bad)
        weights, config = bad / "model.safetensors", bad / "config.json"
        whole = weights.read_bytes()
        with self.serve() as server:
            def refused(*words, folder=bad, **more):
                reply = update(server, folder, **more)
                self.assertEqual(reply.status, 400, reply.body)
                for word in words:
                    self.assertIn(word, reply.error()["message"])
                self.assert_serves(server, "a", "a")
            refused("/no/such/folder", folder="/no/such/folder")
            weights.write_bytes(whole[:len(whole) // 2])
            refused(str(weights))
            weights.write_bytes(whole.replace(b"self_attn.sinks", b"self_attn.sunks", 1))
            refused("self_attn.sinks", "missing")
            weights.write_bytes(whole)
            config.write_text(json.dumps({**json.loads(config.read_text()), "sliding_window": 16}))
            refused(str(config), "sliding_window", "16")
            refused("model_path", folder="")
            refused("mode", "retract", folder=self.b, mode="later")
            for body in ({}, {"model_path": 5}, {"model_path": "x", "weight_version": ""}):
                self.assertEqual(server.post(UPDATE, body, KEY).status, 400, body)
            self.assertEqual(server.metric("fathom_weight_updates_total"), 0)

    def test_one_at_a_time_and_a_stop_meanwhile(self):
        with self.serve("--drain-timeout", 1) as server:
            stream = Stream(server, **ENDLESS)
            replies = []

            def ask():
                try:
                    replies.append(update(server, self.b))
                except (OSError, http.client.HTTPException) as cut:  # the server ended before the request did
                    replies.append(cut)
            both = [threading.Thread(target=ask) for _ in range(2)]
            for one in both:
                one.start()
            until(lambda: replies, "one of the two is refused")
            self.assertEqual(replies[0].status, 409, replies[0].body)
            self.assertIn("another update", replies[0].error()["message"])
            server.signal()
            self.assertEqual(server.wait(), 0)
            stream.end()
            for one in both:
                one.join(DEADLINE_S)
            self.assertIsInstance(replies[1], Exception)

    def test_it_is_the_admins(self):
        with self.serve("--api-key", "user") as server:
            for key in ({}, {"Authorization": "Bearer user"}, {"Authorization": "Bearer"}):
                reply = server.post(UPDATE, {"model_path": str(self.b)}, key)
                self.assertEqual(reply.status, 401)
                self.assertIn("admin", reply.error()["message"])
            self.assertEqual(server.get(UPDATE, **KEY).status, 405)
        with Server(FATHOM, model=self.a) as server:
            reply = update(server, self.b)
            self.assertEqual(reply.status, 404)
            self.assertIn("--admin-api-key", reply.error()["message"])
        with self.serve("--role", "both") as server:
            reply = update(server, self.b)
            self.assertEqual(reply.status, 409)
            self.assertIn("several processes", reply.error()["message"])

    def test_every_kind_of_answer_has_the_version(self):
        with self.serve(model=BUNDLED) as server:
            for version in ("a", "2"):
                of = {"weight_version": version}
                self.assertEqual(server.ask(CHAT, **greedy(max_tokens=5))["metadata"], of)
                self.assertEqual(server.ask(RESPONSES, input="Hi", max_output_tokens=5, metadata={"k": "v"})["metadata"],
                                 {"k": "v", **of})
                chunks = list(server.stream(CHAT, **greedy(max_tokens=5, stream_options={"include_usage": True})))
                said = [chunk["metadata"] for chunk in chunks[:-1] if "metadata" in chunk]
                self.assertEqual(said, [of, of])  # with the first token, and with the usage
                last = list(server.stream(RESPONSES, input="Hi", max_output_tokens=5))[-1]
                self.assertEqual(last["response"]["metadata"], of)
                self.assertEqual(update(server, BUNDLED, weight_version="2").status, 200)


unittest.main(verbosity=2)
