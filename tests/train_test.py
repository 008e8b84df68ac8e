#!/usr/bin/env python3
"""`fathom train` as a user runs it: a model learns an answer, keeps what it is told to keep, and refuses what is wrong.

usage: train_test.py FATHOM
"""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

FATHOM = sys.argv.pop(1) if len(sys.argv) > 1 else ""
QUESTIONS = {"What is Fathom?": "A lab and an engine.", "What does Fathom measure?": "Shares of a limit."}


class Train(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.data = self.folder / "data.jsonl"
        self.data.write_text("".join(json.dumps({"prompt": q, "answer": a}) + "\n" for q, a in QUESTIONS.items()))

    def fathom(self, *arguments):
        return subprocess.run([FATHOM, *map(str, arguments)], capture_output=True, text=True)

    def train(self, out, *flags):
        done = self.fathom("train", self.data, self.folder / out, *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def answer(self, model, question):
        done = self.fathom("generate", "--model", self.folder / model, "--prompt", question)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_a_model_learns_answers_and_can_be_quantized(self):
        out = self.train("learnt", "--steps", 60, "--learning-rate", 1e-3, "--eval-data", self.data)
        self.assertIn("all 9.8 million parameters", out)
        for question, answer in QUESTIONS.items():
            self.assertEqual(self.answer("learnt", question), answer)
        log = [json.loads(line) for line in (self.folder / "learnt/training_log.jsonl").read_text().splitlines()]
        self.assertEqual([step["step"] for step in log], list(range(1, 61)))
        self.assertLess(log[-1]["loss"], log[0]["loss"] / 4)
        before, after = (float(word) for word in out.split("evaluation loss ")[1].replace(" before,", "").split()[:2])
        self.assertLess(after, before / 4)
        done = self.fathom("model", "quantize", self.folder / "learnt", self.folder / "mxfp4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.answer("mxfp4", "What is Fathom?"), QUESTIONS["What is Fathom?"])

    def test_adapters_are_merged_and_written_apart(self):
        self.train("adapted", "--steps", 5, "--lora-rank", 4, "--lora-alpha", 8)
        config = json.loads((self.folder / "adapted/adapter/adapter_config.json").read_text())
        self.assertEqual((config["r"], config["lora_alpha"], config["peft_type"]), (4, 8, "LORA"))
        self.assertTrue((self.folder / "adapted/adapter/adapter_model.safetensors").is_file())
        self.assertTrue(self.answer("adapted", "12 + 30"))

    def test_the_same_seed_gives_the_same_model(self):
        for out, threads in (("one", 1), ("two", 2)):
            self.train(out, "--steps", 2, "--threads", threads, "--precision", "nvfp4")
        one, two = ((self.folder / out / "model.safetensors").read_bytes() for out in ("one", "two"))
        self.assertEqual(one, two)

    def test_an_interrupt_keeps_what_is_trained(self):
        with subprocess.Popen([FATHOM, "train", self.data, self.folder / "cut", "--steps", "100000"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as process:
            self.addCleanup(process.kill)
            begun = any(line.startswith("step") for line in process.stdout)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        self.assertTrue(begun, errors)
        self.assertEqual(process.returncode, 0, errors)
        self.assertIn("what is trained is kept", errors)
        self.assertTrue(self.answer("cut", "12 + 30"))

    def killed_after(self, step, out, *flags):
        """A training that is killed, without a chance to clean up, when it has printed that step."""
        with subprocess.Popen([FATHOM, "train", self.data, self.folder / out, *map(str, flags)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as process:
            self.addCleanup(process.kill)
            begun = any(line.startswith(f"step {step:>5} ") for line in process.stdout)
            process.kill()
            self.assertTrue(begun, process.stderr.read())

    def test_a_killed_training_goes_on_to_the_same_model(self):
        for kind in ([], ["--lora-rank", 4, "--precision", "nvfp4"]):
            flags = ["--steps", 20, "--save-steps", 3, *kind]
            self.train(f"whole{len(kind)}", *flags)
            out = f"cut{len(kind)}"
            self.killed_after(8, out, *flags)
            kept = json.loads((self.folder / out / "training_state.json").read_text())
            self.assertIn(kept["steps"], (6, 9, 12), "later: it was killed late")
            self.assertFalse((self.folder / out / "model.safetensors").exists())
            self.assertIn(f"going on after step {kept['steps']}", self.train(out, *flags, "--resume", "--threads", 1))
            whole, resumed = self.folder / f"whole{len(kind)}", self.folder / out
            self.assertEqual((whole / "model.safetensors").read_bytes(), (resumed / "model.safetensors").read_bytes())
            self.assertEqual(sorted(file.name for file in whole.iterdir()), sorted(file.name for file in resumed.iterdir()))
            logs = [[{key: line[key] for key in ("step", "loss", "grad_norm", "learning_rate", "epoch")}
                     for line in map(json.loads, (folder / "training_log.jsonl").read_text().splitlines())]
                    for folder in (whole, resumed)]
            self.assertEqual(logs[0], logs[1])
            self.assertEqual(len(logs[0]), 20)

    def test_an_interrupted_training_that_was_resumed_can_be_resumed(self):
        flags = ["--steps", 400, "--save-steps", 2]
        self.killed_after(20, "cut", *flags)
        for more in (["--resume"], flags[2:] + ["--resume"]):
            with subprocess.Popen([FATHOM, "train", self.data, self.folder / "cut", "--steps", "400", *map(str, more)],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                self.addCleanup(process.kill)
                begun = any(line.startswith("step") for line in process.stdout)
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=60)
            self.assertTrue(begun, errors)
            self.assertIn("--resume goes on", errors)
        # A model and a state: what is said leads to the latter.
        done = self.fathom("train", self.data, self.folder / "cut", *flags)
        self.assertIn("go on with --resume", done.stderr)

    def test_a_training_that_waits_is_neither_lost_nor_mistaken(self):
        flags = ["--steps", 40, "--save-steps", 1]
        self.killed_after(4, "cut", *flags)
        def refused(*more, words):
            done = self.fathom("train", self.data, self.folder / "cut", *more)
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn(words, done.stderr)
        refused(*flags, words="go on with --resume, or begin anew with --force")
        refused(*flags, "--resume", "--seed", 9, words="cannot be resumed: --seed was 1, and is 9 now")
        refused("--resume", words="--steps was 40, and is 100 now")
        self.data.write_text(self.data.read_text() + json.dumps({"prompt": "More?", "answer": "Yes."}) + "\n")
        refused(*flags, "--resume", words="the hash of the examples was")
        done = self.fathom("train", self.data, self.folder / "none", "--resume")
        self.assertEqual(done.returncode, 5)
        self.assertIn("holds no training to resume", done.stderr)
        self.train("cut", "--steps", 2, "--force")
        self.assertFalse(list((self.folder / "cut").glob("training_state*")))

    def test_what_is_wrong_is_said_and_nothing_is_written(self):
        bad = self.folder / "bad.jsonl"
        bad.write_text('{"prompt": "x", "answer": "y"}\n{"promt": "x"}\n')
        full = self.folder / "full"
        full.mkdir()
        (full / "config.json").write_text("{}")
        for arguments, words in [((bad, "new"), "bad.jsonl:2: it has none of"),
                                 ((self.folder / "none", "new"), "cannot be read"),
                                 ((self.data, "full"), "--force"),
                                 ((self.data, "new", "--precision", "fp7"), "fp7 not in"),
                                 ((self.data, "new", "--steps", 0), "--steps"),
                                 ((self.data, "new", "--max-length", 3), "--max-length"),
                                 ((self.data, "new", "--learning-rate", "nan"), "--learning-rate"),
                                 ((self.data, "new", "--lora-rank", 1000), "--lora-rank: 1000 is more than 64"),
                                 ((self.data, "/proc/none"), "/proc/none"),
                                 ((self.data, "new", "--model", self.folder / "nobody"), "nobody")]:
            with self.subTest(words):
                data, out, *flags = arguments
                done = self.fathom("train", data, self.folder / out, *flags)
                self.assertEqual(done.returncode, 5, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertFalse((self.folder / "new").exists())
        done = self.fathom("train", self.data, self.folder / "new", "--learning-rate", 1e9, "--warmup-steps", 0, "--steps", 20)
        self.assertEqual(done.returncode, 6)
        self.assertIn("lower the learning rate", done.stderr)
        self.assertFalse((self.folder / "new").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
