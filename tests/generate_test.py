"""`fathom generate`, `fathom chat` and `fathom model tokenize`, from scripts and on a terminal, with a model of
random weights and with the bundled one.

usage: generate_test.py FATHOM
"""

import array
import ast
import json
import math
import os
import pathlib
import pty
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

FATHOM = os.path.abspath(sys.argv.pop(1))
ROOT = pathlib.Path(__file__).resolve().parent.parent
BUNDLED = ROOT / "models" / "tiny"
VOCAB = 384


def environment(**more):
    return {**{k: v for k, v in os.environ.items() if not k.startswith("FATHOM_")}, **more}


def fathom(*args, stdin="", **more):
    return subprocess.run([FATHOM, *map(str, args)], input=stdin, capture_output=True, text=True, timeout=120,
                          cwd=ROOT, env=environment(**more))


def read_npy(path):
    data = path.read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    size = struct.unpack("<H", data[8:10])[0]
    assert (10 + size) % 64 == 0 and data[9 + size:10 + size] == b"\n"
    header = ast.literal_eval(data[10:10 + size].decode())
    assert header["descr"] == "<f4" and header["fortran_order"] is False
    numbers = array.array("f", data[10 + size:])
    rows, columns = header["shape"]
    assert len(numbers) == rows * columns
    return [numbers[r * columns:(r + 1) * columns] for r in range(rows)]


class Folder(unittest.TestCase):
    """A model with random weights in `bare`; one with the bundled tokenizer in `chatty`."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.temporary.name)
        cls.bare, cls.chatty = folder / "bare", folder / "chatty"
        for folder, vocab in ((cls.bare, VOCAB), (cls.chatty, 1024)):
            made = fathom("model", "make", "--shape", "tiny", "--seed", 3, "--vocab", vocab, folder)
            assert made.returncode == 0, made.stderr
        for name in ("tokenizer.json", "generation_config.json"):
            shutil.copy(BUNDLED / name, cls.chatty)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def json_of(self, *args, **more):
        result = fathom("generate", "--json", *args, **more)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def refused(self, *args, words=(), **more):
        result = fathom(*args, **more)
        self.assertEqual(result.returncode, 5, (args, result.stdout, result.stderr))
        self.assertEqual(result.stdout, "", args)
        for word in words:
            self.assertIn(word, result.stderr, args)


class GenerateFromIds(Folder):
    def generate(self, ids, *args):
        return self.json_of("--model", self.bare, "--prompt-ids", ",".join(map(str, ids)), *args)

    def test_one_object_says_it_all(self):
        seen = self.generate([1, 2, 3], "--ignore-eos", "--max-tokens", 7)
        self.assertEqual(seen["schema"], "fathom.generate/1")
        self.assertEqual(seen["prompt_ids"], [1, 2, 3])
        self.assertEqual(len(seen["output_ids"]), 7)
        self.assertTrue(all(0 <= i < VOCAB for i in seen["output_ids"]), seen["output_ids"])
        self.assertEqual(seen["finish_reason"], "length")
        self.assertIsNone(seen["text"])  # without a tokenizer
        self.assertIsNone(seen["messages"])
        timings = seen["timings"]
        for name in ("prompt_ms", "prompt_tokens_per_s", "ttft_ms", "decode_ms", "decode_tokens_per_s"):
            self.assertGreater(timings[name], 0, name)
        self.assertGreaterEqual(timings["ttft_ms"], timings["prompt_ms"])
        self.assertAlmostEqual(timings["decode_tokens_per_s"], 6e3 / timings["decode_ms"], places=3)

    def test_threads_do_not_matter_and_greedy_is_greedy(self):
        outputs = [self.generate([5, 6, 7], "--ignore-eos", "--max-tokens", 40, "--threads", threads)["output_ids"]
                   for threads in (1, 2, 3)]
        self.assertEqual(outputs[0], outputs[1])
        self.assertEqual(outputs[0], outputs[2])
        # Logits of the same tokens decoded one by one and prefilled at once as a longer prompt.
        again = self.generate([5, 6, 7] + outputs[0][:20], "--ignore-eos", "--max-tokens", 20)["output_ids"]
        self.assertEqual(again, outputs[0][20:])

    def test_ranks_do_not_matter(self):
        one = self.generate([5, 6, 7], "--ignore-eos", "--max-tokens", 40)["output_ids"]
        for flags in (["-tp", 2], ["--tensor-parallel-size=4", "--enable-expert-parallel"],
                      ["-pp", 2], ["--pipeline-parallel-size=3", "-tp", 2],
                      ["-tp", 2, "--enable-expert-parallel", "--enable-eplb", "--eplb-config",
                       '{"window_size": 8, "step_interval": 4, "num_redundant_experts": 2}']):
            ranks = self.generate([5, 6, 7], "--ignore-eos", "--max-tokens", 40, *flags)["output_ids"]
            self.assertEqual(ranks, one, flags)
        self.refused("generate", "--model", self.bare, "--prompt-ids", "1", "-tp", 3,
                     words=["--tensor-parallel-size 3 does not divide the model's 8 attention heads"])
        self.refused("generate", "--model", self.bare, "--prompt-ids", "1", "--no-mmap", "--device", "cuda",
                     words=["--no-mmap is for CPUs"])

    def test_eplb_needs_whole_experts_on_cpu_ranks(self):
        def refused(*flags, words):
            self.refused("generate", "--model", self.bare, "--prompt-ids", "1", *flags, words=words)
        refused("--enable-eplb", words=["--enable-eplb moves whole experts", "--enable-expert-parallel too"])
        refused("-tp", 2, "--enable-eplb", words=["--enable-expert-parallel too"])
        ranks = ["-tp", 2, "--enable-expert-parallel"]
        refused(*ranks, "--enable-eplb", "--device", "cuda", words=["not implemented on GPUs", "--device cpu"])
        refused(*ranks, "--eplb-config", "{}", words=["--eplb-config", "--enable-eplb"])
        for config, named in (("{", "JSON object"), ('{"use_async": true}', "has use_async, but its keys are window_size"),
                              ('{"window_size": 0}', "window_size is 0, but must be a whole number from 1"),
                              ('{"step_interval": 1.5}', "step_interval is 1.5"),
                              ('{"log_balancedness": 1}', "log_balancedness is 1, but must be true or false"),
                              ('{"num_redundant_experts": 9}', "num_redundant_experts is 9, but must be 0 to 8")):
            refused(*ranks, "--enable-eplb", "--eplb-config", config, words=[named])

    def test_the_engine_does_not_matter(self):
        expected = self.generate(range(40), "--ignore-eos", "--max-tokens", 60)["output_ids"]
        for flags in (("--baseline",), ("--no-mmap",), ("--draft-tokens", 3),
                      ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1}'),
                      ("--speculative-config", '{"method": "suffix", "num_speculative_tokens": 7}'), ("--max-num-batched-tokens", 7, "--block-size", 3),
                      ("--adaptive",), ("--prefix-cache-eviction", "adaptive")):
            self.assertEqual(self.generate(range(40), "--ignore-eos", "--max-tokens", 60, *flags)["output_ids"], expected,
                             flags)

    def test_a_speculative_config_is_checked(self):
        for config, named in (("{", "JSON object"), ('{"num_speculative_tokens": 3}', "no method"),
                              ('{"method": "medusa"}', "medusa"), ('{"method": "suffix"}', "no num_speculative_tokens"),
                              ('{"method": "suffix", "num_speculative_tokens": 16}', "1 to 15"),
                              ('{"method": "suffix", "num_speculative_tokens": 3, "depth": 2}', "depth"),
                              ('{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 5}', "prompt_lookup_min is 5"),
                              ('{"method": "eagle3", "num_speculative_tokens": 3}', "needs \"model\""),
                              ('{"method": "eagle3", "num_speculative_tokens": 3, "model": "/nowhere"}', "/nowhere")):
            self.refused("generate", "--model", self.bare, "--prompt-ids", "1", "--speculative-config", config, words=(named,))

    def test_a_seed_decides_where_the_temperature_is_not_0(self):
        def sampled(seed):
            return self.generate([9], "--ignore-eos", "--max-tokens", 30, "--temperature", 2, "--top-k", 50,
                                 "--seed", seed)["output_ids"]
        self.assertEqual(sampled(1), sampled(1))
        self.assertNotEqual(sampled(1), sampled(2))

    def test_an_end_token_stops_the_answer(self):
        output = self.generate([1, 2, 3], "--ignore-eos", "--max-tokens", 12)["output_ids"]
        end = output[5]
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "model"
            shutil.copytree(self.bare, copy)
            (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": [end]}))
            arguments = ("--model", copy, "--prompt-ids", "1,2,3", "--max-tokens", 12)
            stopped = self.json_of(*arguments)
            self.assertEqual(stopped["output_ids"], output[:output.index(end) + 1])
            self.assertEqual(stopped["finish_reason"], "stop")
            self.assertEqual(self.json_of(*arguments, "--ignore-eos")["output_ids"], output)

    def test_logits_of_every_position(self):
        ids = list(range(20, 61))
        with tempfile.TemporaryDirectory() as folder:
            whole, part = pathlib.Path(folder) / "whole.npy", pathlib.Path(folder) / "part.npy"
            seen = self.generate(ids, "--max-tokens", 1, "--ignore-eos", "--logits", whole)
            rows = read_npy(whole)
            self.assertEqual((len(rows), len(rows[0])), (len(ids), VOCAB))
            self.assertTrue(all(math.isfinite(x) for row in rows for x in row))
            self.assertEqual(rows[-1].index(max(rows[-1])), seen["output_ids"][0])
            self.generate(ids[:17], "--max-tokens", 1, "--logits", part)
            self.assertEqual(read_npy(part), rows[:17])  # later tokens do not change a bit
            self.assertEqual(sorted(os.listdir(folder)), ["part.npy", "whole.npy"])

    def test_ids_to_read_where_there_is_no_tokenizer(self):
        result = fathom("generate", "--model", self.bare, "--prompt-ids", "4,5", "--max-tokens", 3, "--ignore-eos")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(result.stdout.split()), 3)
        self.assertIn("decode ", result.stderr)

    def test_the_environment_names_the_model(self):
        seen = self.json_of("--prompt-ids", "1", "--max-tokens", 2, "--ignore-eos", FATHOM_MODEL=str(self.bare))
        self.assertIsNone(seen["text"])

    def test_what_cannot_be_is_refused_with_the_remedy(self):
        model = ("generate", "--model", self.bare)
        self.refused(*model, "--prompt-ids", "1,384", words=("384", "0 to 383"))
        self.refused(*model, "--prompt-ids", "1,-2")
        self.refused(*model, "--prompt-ids", "1,two")
        self.refused(*model, "--prompt-ids", ",".join(["1"] * 9), "--max-model-len", 8,
                     words=("9 tokens", "--max-model-len"))
        self.refused(*model, "--prompt", "hello", words=("tokenizer.json", "--prompt-ids"))
        self.refused(*model)
        self.refused(*model, "--prompt", "a", "--prompt-ids", "1")
        self.refused(*model, "--prompt-ids", "1", "--top-p", 0, words=("top_p",))
        self.refused(*model, "--prompt-ids", "1", "--temperature", -1, words=("temperature",))
        self.refused(*model, "--prompt-ids", "1", "--logits", self.bare / "config.json" / "x.npy", words=("x.npy",))
        self.refused("generate", "--model", self.bare / "nowhere", "--prompt-ids", "1", words=("config.json",))
        self.refused("chat", "--model", self.bare, words=("tokenizer.json",))


class GenerateFromText(Folder):
    def test_the_template_and_the_text_as_it_is(self):
        question = "What is 3 + 4? <|end|>"
        shown = self.json_of("--model", self.chatty, "--prompt", question, "--dry-run")
        self.assertIn(question, "".join(shown["tokens"]))
        system = json.loads((BUNDLED / "generation_config.json").read_text())["system_prompt"]
        self.assertIn(system, "".join(shown["tokens"]))
        self.assertNotIn("Current date", "".join(shown["tokens"]))
        dated = self.json_of("--model", self.chatty, "--prompt", question, "--dry-run", "--current-date", "2031-02-03")
        self.assertIn(system + "\nCurrent date: 2031-02-03", "".join(dated["tokens"]))
        made = self.json_of("--model", self.chatty, "--prompt", question, "--max-tokens", 5, "--ignore-eos")
        self.assertEqual(made["prompt_ids"], shown["prompt_ids"])
        self.assertEqual(len(made["output_ids"]), 5)

        raw = self.json_of("--model", self.chatty, "--prompt", question, "--raw", "--dry-run")
        lines = json.dumps(question) + "\n"
        plain, added = (json.loads(fathom("model", "tokenize", self.chatty, "--json", *flags, stdin=lines).stdout)
                        for flags in ((), ("--added-tokens",)))
        self.assertEqual(raw["prompt_ids"], added)
        self.assertLess(len(added), len(plain))
        # A user's text never becomes a control token.
        self.assertNotIn(added[-1], plain)
        self.assertEqual(shown["prompt_ids"].count(added[-1]), 2)  # the ends of two messages
        text = fathom("generate", "--model", self.chatty, "--prompt", question, "--dry-run")
        self.assertEqual([int(line.split()[0]) for line in text.stdout.splitlines()], shown["prompt_ids"])

    def test_prompts_from_files_and_pipes(self):
        arguments = ("--model", self.chatty, "--dry-run")
        expected = self.json_of(*arguments, "--prompt", "Grüße\n")["prompt_ids"]
        self.assertEqual(self.json_of(*arguments, "--file", "-", stdin="Grüße\n")["prompt_ids"], expected)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "prompt.txt"
            file.write_text("Grüße\n", encoding="utf-8")
            self.assertEqual(self.json_of(*arguments, "--file", file)["prompt_ids"], expected)
            self.refused("generate", *arguments, "--file", folder + "/none", words=("none",))
        self.refused("generate", *arguments, "--prompt", "", words=("empty",))
        self.refused("generate", *arguments, "--file", "-", words=("empty",))

    def test_tokenize(self):
        result = fathom("model", "tokenize", self.chatty, stdin="Hello, world\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        tokens = [line.split(None, 1) for line in result.stdout.splitlines()]
        self.assertEqual("".join(json.loads(text) for _, text in tokens), "Hello, world\n")
        lines = fathom("model", "tokenize", self.chatty, "--json", stdin='"Hello, world\\n"\n""\n').stdout.splitlines()
        self.assertEqual(json.loads(lines[0]), [int(i) for i, _ in tokens])
        self.assertEqual(json.loads(lines[1]), [])
        wrong = fathom("model", "tokenize", self.chatty, "--json", stdin='"a"\nb\n')
        self.assertEqual(wrong.returncode, 5)
        self.assertIn("line 2", wrong.stderr)
        self.refused("model", "tokenize", self.bare, words=("tokenizer.json",))


class Bundled(Folder):
    QUESTIONS = ["What is 12 + 30?", "Reverse the word \"lemon\"."]

    def answers(self, lines, *args):
        result = fathom("chat", *args, stdin="".join(line + "\n" for line in lines))
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.splitlines(), result.stderr

    def test_generate_and_chat_give_the_same_answer(self):
        for question in self.QUESTIONS:
            seen = self.json_of("--prompt", question)
            self.assertEqual(seen["finish_reason"], "stop")
            self.assertEqual(seen["text"], "".join(m["content"] for m in seen["messages"] if m["channel"] == "final"))
            self.assertNotEqual(seen["text"], "")
            shown = fathom("generate", "--prompt", question)
            self.assertEqual(shown.stdout, seen["text"] + "\n")
            answers, log = self.answers([question])
            self.assertEqual(answers, [seen["text"]])
            self.assertIn("decode ", log)

    def test_a_pipe_is_a_conversation(self):
        first, second = self.QUESTIONS
        alone = len(self.json_of("--prompt", first, "--dry-run")["prompt_ids"])
        page = 16

        def conversation(lines, *args):
            answers, log = self.answers(lines, *args)
            self.assertEqual(len(answers), 2, answers)
            return answers, [int(line.split("prefill ")[1].split()[0]) for line in log.splitlines()]

        # The common prefix with earlier turns comes from the prefix cache, except for the page of the last token.
        again = ["", first, "/new", first, "/exit", "never asked"]
        answers, read = conversation(again)
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(read, [alone, (alone - 1) % page + 1])
        self.assertEqual(conversation(again, "--no-prefix-cache"), (answers, [alone, alone]))
        # Only the first turn without its analysis and the second question are computed; the rest is cached.
        answers, read = conversation([first, second])
        anew, whole = conversation([first, second], "--no-enable-prefix-caching", "--enforce-eager")
        self.assertEqual(answers, anew)
        self.assertGreater(alone, page)
        self.assertEqual(read, [alone, whole[1] - alone // page * page])

    def test_the_analysis_is_shown_to_who_asks(self):
        question = self.QUESTIONS[0]
        messages = self.json_of("--prompt", question)["messages"]
        analysis = [m["content"] for m in messages if m["channel"] == "analysis"]
        self.assertEqual(len(analysis), 1)
        answers, _ = self.answers([question], "--show-analysis")
        self.assertEqual("\n".join(answers), analysis[0] + "\n" + messages[-1]["content"])

    def test_a_conversation_that_does_not_fit_says_so(self):
        result = fathom("chat", "--max-model-len", 20, stdin=self.QUESTIONS[0] + "\n")
        self.assertEqual(result.returncode, 5)
        self.assertIn("--max-model-len", result.stderr)
        self.assertEqual(result.stdout, "")


class Terminal(Folder):
    """Chat on a pseudo-terminal, with a model that never stops by itself."""

    def setUp(self):
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.execve(FATHOM, [FATHOM, "chat", "--model", str(self.chatty), "--ignore-eos", "--max-tokens", "1000000",
                               "--max-model-len", "100000"], environment(TERM="dumb"))
        self.screen = b""
        self.status = None

    def tearDown(self):
        if self.status is None:
            os.kill(self.child, 9)
            os.waitpid(self.child, 0)
        os.close(self.terminal)

    def wait_for(self, text, seconds=60):
        """Returns when `text` is on the screen, and drops the output before it."""
        end = time.monotonic() + seconds
        while text not in self.screen:
            left = end - time.monotonic()
            self.assertGreater(left, 0, f"no {text!r} in {self.screen[-2000:]!r}")
            if select.select([self.terminal], [], [], min(left, 1))[0]:
                try:
                    self.screen += os.read(self.terminal, 65536)
                except OSError:  # the other end is closed
                    break
        before, found, self.screen = self.screen.partition(text)
        self.assertEqual(found, text, before[-2000:])
        return before

    def type(self, text):
        os.write(self.terminal, text)

    def expect_exit(self, seconds=20):
        end = time.monotonic() + seconds
        while self.status is None and time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.1)[0]:
                try:
                    os.read(self.terminal, 65536)
                except OSError:
                    pass
            done, status = os.waitpid(self.child, os.WNOHANG)
            if done:
                self.status = status
        self.assertEqual(self.status, 0)

    def stop_an_answer(self):
        self.wait_for(b"> ")
        self.type(b"hello\n")
        self.wait_for(b"hello\r\n")  # the echo
        time.sleep(1)  # in the middle of an answer
        self.type(b"\x03")
        self.wait_for(b"stopped; ")
        self.assertIn(b"tok/s", self.wait_for(b"> "))

    def test_ctrl_c_stops_the_answer_and_twice_at_the_prompt_the_program(self):
        self.stop_an_answer()
        self.type(b"\x03")
        self.wait_for(b"Once more")
        self.wait_for(b"> ")
        self.type(b"again\n")  # unlike the announcement
        self.wait_for(b"again\r\n")
        time.sleep(0.5)
        self.type(b"\x03")
        self.wait_for(b"stopped; ")
        self.wait_for(b"> ")
        self.type(b"\x03")
        self.wait_for(b"Once more")
        self.type(b"\x03")
        self.expect_exit()

    def test_ctrl_d_ends(self):
        self.stop_an_answer()
        self.type(b"\x04")
        self.expect_exit()

    def test_exit_ends(self):
        self.wait_for(b"> ")
        self.type(b"/exit\n")
        self.expect_exit()


del Folder  # a base class without tests
unittest.main(verbosity=2)
