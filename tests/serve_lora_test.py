#!/usr/bin/env python3
"""Adapters beside a model: `fathom train --lora-rank` writes them, `fathom serve --lora-modules` serves them, and clients name them as models.

usage: serve_lora_test.py FATHOM
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from serve_process import BUNDLED, CHAT, COMPLETIONS, QUESTION, Server, greedy

FATHOM = os.path.abspath(sys.argv.pop(1))
TAUGHT = {"fish": "A fish.", "bird": "A bird."}  # what each adapter is trained to answer, whatever is asked
ASKED = ("What is this?", QUESTION)


def teach(folder, name, answer):
    """The merged model in folder/name, and its adapter in folder/name/adapter."""
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps({"prompt": question, "answer": answer}) + "\n" for question in ASKED))
    subprocess.run([FATHOM, "train", data, folder / name, "--lora-rank", "16", "--steps", "60", "--learning-rate", "2e-3"],
                   check=True, capture_output=True, text=True, timeout=280)
    return f"{name}={folder / name / 'adapter'}"


class Adapters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.modules = [teach(cls.folder, name, answer) for name, answer in TAUGHT.items()]
        # By models that have the adapter in their weights, and by the model that has none.
        cls.expected = {}
        for name, model in {"base": BUNDLED, **{name: cls.folder / name for name in TAUGHT}}.items():
            with Server(FATHOM, model=model) as merged:
                cls.expected[name] = {question: cls.answer(merged, question) for question in ASKED}
        cls.server = cls.enterClassContext(Server(FATHOM, "--served-model-name", "base", "--lora-modules", *cls.modules))

    @staticmethod
    def answer(server, question, **more):
        return server.ask(CHAT, **greedy(question, **more))["choices"][0]["message"]["content"]

    def test_each_name_gives_its_own_answer_in_any_mix(self):
        for question in ASKED:
            self.assertEqual(len({self.expected[name][question] for name in self.expected}), 3, self.expected)
        asked = [(question, name) for question in ASKED for name in self.expected] * 3
        with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
            answers = list(pool.map(lambda one: self.answer(self.server, one[0], model=one[1]), asked))
        for (question, name), answer in zip(asked, answers):
            self.assertEqual(answer, self.expected[name][question], (name, question))
        for question in ASKED:
            self.assertEqual(self.answer(self.server, question), self.expected["base"][question], "no name: the model")

    def test_prefixes_are_not_shared_between_adapters(self):
        # The same long prompt, found in the cache for one name after the other: a block of another's would show.
        ask = {"prompt": "Sort these words: " + ", ".join(f"word{i}" for i in range(60)), "max_tokens": 24, "temperature": 0,
               "ignore_eos": True}
        text_of = lambda server, name, **more: server.ask(COMPLETIONS, model=name, **ask, **more)["choices"][0]["text"]
        alone = {}
        for name in self.expected:
            with Server(FATHOM, "--served-model-name", "base", "--lora-modules", *self.modules) as fresh:
                alone[name] = text_of(fresh, name)
        self.assertEqual(len(set(alone.values())), 3, alone)
        salted = {"cache_salt": "adapter fish\n"}  # no salt of a client's reaches an adapter's blocks
        for more in ({}, {}, salted, {}):
            for name, text in alone.items():
                self.assertEqual(text_of(self.server, name, **more), text, (name, more))

    def test_drafts_and_a_full_cache_change_no_answer(self):
        asked = [(question, name) for question in ASKED for name in self.expected] * 3
        for flags in (("--draft-tokens", 4), ("--speculative-config", json.dumps({"method": "suffix", "num_speculative_tokens": 4})),
                      ("--max-model-len", 256, "--kv-tokens", 256, "--max-num-batched-tokens", 16)):
            with Server(FATHOM, "--served-model-name", "base", *flags, "--lora-modules", *self.modules) as server:
                with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
                    answers = list(pool.map(lambda one: self.answer(server, one[0], model=one[1]), asked))
            for (question, name), answer in zip(asked, answers):
                self.assertEqual(answer, self.expected[name][question], (flags, name, question))

    def test_clients_see_them_as_models(self):
        listed = {model["id"]: model for model in self.server.get("/v1/models").json()["data"]}
        self.assertEqual(list(listed), ["base", *TAUGHT])
        self.assertEqual((listed["base"]["parent"], listed["fish"]["parent"]), (None, "base"))
        self.assertEqual(listed["fish"]["root"], str(self.folder / "fish/adapter"))
        self.assertEqual(self.server.get("/v1/models/bird").json()["id"], "bird")
        self.assertEqual(self.server.ask(CHAT, **greedy(ASKED[0], model="fish"))["model"], "fish")
        events = list(self.server.stream(CHAT, **greedy(ASKED[0], model="bird")))
        self.assertEqual({event["model"] for event in events if event != "[DONE]"}, {"bird"})
        reply = self.server.post(CHAT, greedy(ASKED[0], model="cat"))
        self.assertEqual((reply.status, reply.error()["param"]), (404, "model"))

    def test_what_cannot_be_served_is_refused_at_the_start(self):
        empty = self.folder / "empty"
        empty.mkdir(exist_ok=True)
        for flags, said in ((["fish"], "NAME=FOLDER"), ([f"fish={empty}"], "adapter_config.json cannot be read"),
                            ([self.modules[0], self.modules[0]], "two adapters 'fish'"),
                            ([f"tiny={self.folder}"], "the model itself is called 'tiny'"),
                            ([self.modules[0], "--tensor-parallel-size", "2"], "needs one rank"),
                            ([self.modules[0], "--kv-pool", "localhost:1"], "server by itself")):
            done = subprocess.run([FATHOM, "serve", "--model", BUNDLED, "--port", "0", "--lora-modules", *flags],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
