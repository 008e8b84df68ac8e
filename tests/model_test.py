"""`fathom model inspect` on a tiny checkpoint that this file writes, and on broken ones; one plain use each of `model
make`, `quantize`, `tasks`, `eval` and `bench latency`.

usage: model_test.py FATHOM [CLASS...]
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

FATHOM = os.path.abspath(sys.argv.pop(1))

LAYERS, HIDDEN, INNER, EXPERTS, VOCAB, HEADS, KV_HEADS, HEAD_DIM = 2, 64, 96, 8, 384, 8, 2, 16
CONFIG = {
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "attention_bias": True, "vocab_size": VOCAB,
    "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "head_dim": HEAD_DIM,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "num_local_experts": EXPERTS,
    "num_experts_per_tok": 4, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"],
    "hidden_act": "silu", "rms_norm_eps": 1e-05, "swiglu_limit": 7.0, "tie_word_embeddings": False,
    "max_position_embeddings": 131072, "rope_theta": 150000,
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                     "original_max_position_embeddings": 4096}}


def shapes():
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    yield "model.embed_tokens.weight", [VOCAB, HIDDEN]
    yield "lm_head.weight", [VOCAB, HIDDEN]
    yield "model.norm.weight", [HIDDEN]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", [HIDDEN]
        for part, rows in (("q", q), ("k", kv), ("v", kv)):
            yield at + f"self_attn.{part}_proj.weight", [rows, HIDDEN]
            yield at + f"self_attn.{part}_proj.bias", [rows]
        yield at + "self_attn.sinks", [HEADS]
        yield at + "self_attn.o_proj.weight", [HIDDEN, q]
        yield at + "self_attn.o_proj.bias", [HIDDEN]
        yield at + "post_attention_layernorm.weight", [HIDDEN]
        yield at + "mlp.router.weight", [EXPERTS, HIDDEN]
        yield at + "mlp.router.bias", [EXPERTS]
        yield at + "mlp.experts.gate_up_proj", [EXPERTS, HIDDEN, 2 * INNER]
        yield at + "mlp.experts.gate_up_proj_bias", [EXPERTS, 2 * INNER]
        yield at + "mlp.experts.down_proj", [EXPERTS, INNER, HIDDEN]
        yield at + "mlp.experts.down_proj_bias", [EXPERTS, HIDDEN]


def elements(shape):
    count = 1
    for extent in shape:
        count *= extent
    return count


def checkpoint(folder, without=None, config=CONFIG):
    header, offset = {}, 0
    for name, shape in shapes():
        if name != without:
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + 2 * elements(shape)]}
            offset += 2 * elements(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(offset))
    (folder / "config.json").write_text(json.dumps(config))


class Inspect(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)

    def tearDown(self):
        self.temporary.cleanup()

    def inspect(self, *more):
        return subprocess.run([FATHOM, "model", "inspect", str(self.folder), *more], capture_output=True, text=True,
                              timeout=60)

    def test_counts_what_is_there(self):
        checkpoint(self.folder)
        result = self.inspect("--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        seen = json.loads(result.stdout)
        self.assertEqual(seen["layout"], "hf_bf16")
        self.assertEqual(seen["parameters"], sum(elements(shape) for _, shape in shapes()))
        self.assertEqual({t["name"]: t["shape"] for t in seen["tensors"]}, dict(shapes()))
        # One full layer: keys and values in bf16.
        self.assertEqual(seen["kv_bytes_per_token"], 2 * KV_HEADS * HEAD_DIM * 2)
        text = self.inspect()
        self.assertEqual(text.returncode, 0, text.stderr)
        for word in ("hf_bf16", "parameters", "KV cache", "bandwidth bound"):
            self.assertIn(word, text.stdout)

    def refused(self, *words):
        result = self.inspect()
        self.assertEqual(result.returncode, 5, result.stdout + result.stderr)
        self.assertEqual(result.stdout, "")
        for word in words:
            self.assertIn(word, result.stderr)

    def test_a_folder_without_a_model_is_refused(self):
        self.refused("config.json")

    def test_a_missing_tensor_is_named(self):
        checkpoint(self.folder, without="model.layers.1.self_attn.sinks")
        self.refused("model.layers.1.self_attn.sinks")

    def test_a_truncated_file_is_refused(self):
        checkpoint(self.folder)
        file = self.folder / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-1])
        self.refused("model.safetensors")

    def test_a_config_of_another_model_is_refused(self):
        checkpoint(self.folder, config=dict(CONFIG, head_dim="sixteen"))
        self.refused("head_dim")


def fathom(*args):
    return subprocess.run([FATHOM, *map(str, args)], capture_output=True, text=True, timeout=120)


class Program(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)

    def tearDown(self):
        self.temporary.cleanup()

    def done(self, *args):
        result = fathom(*args)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def refused(self, word, *args):
        result = fathom(*args)
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertIn(word, result.stderr)


class Made(Program):
    def test_make_and_quantize_meet(self):
        plain, quantised, packed = (self.folder / name for name in ("plain", "quantised", "packed"))
        self.done("model", "make", "--shape", "tiny", "--seed", 3, "--bf16", plain)
        self.done("model", "make", "--shape", "tiny", "--seed", 3, packed)
        self.assertIn("relative rms error", self.done("model", "quantize", plain, quantised))
        inspected = json.loads(self.done("model", "inspect", quantised, "--json"))
        self.assertEqual(inspected["layout"], "hf_mxfp4")
        answers = [json.loads(self.done("generate", "--model", model, "--prompt-ids", "5,6,7", "--ignore-eos", "--max-tokens", 9,
                                        "--json"))["output_ids"] for model in (quantised, packed, plain)]
        self.assertEqual(answers[0], answers[1])
        self.assertNotEqual(answers[0], answers[2])

        # Experts in MXFP4 take activations in int8, those in BF16 do not.
        self.done("generate", "--model", packed, "--prompt-ids", "5,6,7", "--activation-dtype", "int8", "--ignore-eos", "--max-tokens", 9)
        self.refused("fathom model quantize", "generate", "--model", plain, "--prompt-ids", "5,6,7", "--activation-dtype", "int8")
        self.refused("--activation-dtype", "generate", "--model", packed, "--prompt-ids", "5,6,7", "--activation-dtype", "int4")

        int8 = self.folder / "int8"
        self.assertIn("attention", self.done("model", "quantize", "--dense", "int8", packed, int8))
        self.assertIn("in int8", self.done("model", "inspect", int8))
        self.assertLess((int8 / "model.safetensors").stat().st_size, (packed / "model.safetensors").stat().st_size)
        self.done("generate", "--model", int8, "--prompt-ids", "5,6,7", "--ignore-eos", "--max-tokens", 9)
        self.refused("int8 already", "model", "quantize", "--dense", "int8", int8, self.folder / "again")
        self.refused("--force", "model", "make", "--shape", "tiny", packed)
        self.done("model", "make", "--shape", "tiny", "--force", packed)
        self.refused("MXFP4", "model", "quantize", packed, self.folder / "again")

    def test_bench_latency(self):
        model = self.folder / "model"
        self.done("model", "make", "--shape", "tiny", model)
        # At least one step decodes all eight; if the first started before the last was submitted, there would be
        # none.
        text = self.done("bench", "latency", "--model", model, "--input-len", 20, "--output-len", 1,
                         "--batch-size", "1,8", "--num-iters", 50, "--json")
        seen = json.loads(text)
        self.assertEqual((seen["schema"], seen["input_len"], seen["output_len"]), ("fathom.bench_latency/2", 20, 1))
        self.assertEqual([batch["batch_size"] for batch in seen["batches"]], [1, 8])
        self.assertGreater(seen["memory_bytes"]["kv_cache"], 0)
        self.assertGreaterEqual(seen["router_imbalance"], 1)
        for batch in seen["batches"]:
            for times in (batch["ttft_ms"], batch["tpot_ms"]):
                self.assertTrue(0 < times["min"] <= times["median"] <= times["max"], times)
            self.assertAlmostEqual(batch["decode_tokens_per_s"] * batch["tpot_ms"]["median"] / 1e3, batch["batch_size"])
            self.assertAlmostEqual(batch["prefill_tokens_per_s"] * batch["ttft_ms"]["median"] / 1e3, 20 * batch["batch_size"])
        self.refused("--input-len", "bench", "latency", "--model", model, "--input-len", 0)
        self.refused("--device cuda", "bench", "latency", "--model", model, "--profile")
        self.refused("config.json", "bench", "latency", "--model", self.folder / "none")

    def test_what_formats_cost_is_what_was_recorded(self):
        tiny = pathlib.Path(__file__).resolve().parent.parent / "models" / "tiny"
        text = (tiny / "README.md").read_text()
        for name in ("kv_bf16", "kv_fp8", "kv_k8v4", "kv_nvfp4", "kv_nvfp4_hadamard", "weights_fp8", "weights_nvfp4", "dense_int8", "activations_int8"):
            seen = json.loads((tiny / f"eval_{name}.json").read_text())["divergence"]
            row = f"| `eval_{name}.json` | {seen['kl']:.2g} | {seen['nll']:+.2g} | {seen['equal_answers']} of {seen['answers']} |"
            self.assertEqual([line for line in text.splitlines() if line.startswith(f"| `eval_{name}.json` |")], [row])

    def test_tasks_are_apart(self):
        tasks = pathlib.Path(__file__).resolve().parent.parent / "models" / "tiny" / "tasks.toml"
        prompts = {split: {json.loads(line)["prompt"] for line in self.done(
            "model", "tasks", "--grammar", tasks, "--split", split, "--count", 300).splitlines()} for split in ("train", "heldout")}
        self.assertGreater(min(map(len, prompts.values())), 1000)
        self.assertFalse(prompts["train"] & prompts["heldout"])


class Eval(Program):
    def test_eval_counts_right_answers(self):
        tiny = pathlib.Path(__file__).resolve().parent.parent / "models" / "tiny"
        seen = json.loads(self.done("model", "eval", tiny, "--grammar", tiny / "tasks.toml", "--count", 5, "--json"))
        committed = json.loads((tiny / "eval.json").read_text())["model"]
        self.assertEqual(seen["model"]["tasks"].keys(), committed["tasks"].keys())
        self.assertGreater(seen["model"]["accuracy"], 0.9)
        for task, score in committed["tasks"].items():  # the target that the model was trained to reach
            self.assertGreaterEqual(score["accuracy"], 0.95, task)
        # Random weights solve no task.
        lost = self.folder / "lost"
        config = json.loads((tiny / "config.json").read_text())
        self.done("model", "make", "--shape", "tiny", "--vocab", config["vocab_size"], lost)
        for name in ("tokenizer.json", "generation_config.json"):
            (lost / name).write_bytes((tiny / name).read_bytes())
        seen = json.loads(self.done("model", "eval", lost, "--against", tiny, "--grammar", tiny / "tasks.toml", "--count", 2, "--json"))
        self.assertEqual(seen["model"]["accuracy"], 0)
        self.assertEqual(seen["discordant"]["addition"], {"only_model": 0, "only_against": 2})
        self.assertGreater(seen["divergence"]["kl"], 1)
        self.assertLess(seen["divergence"]["agreed_tokens"], 2)

    def test_eval_shows_what_formats_cost(self):
        tiny = pathlib.Path(__file__).resolve().parent.parent / "models" / "tiny"
        def eval(*words, count=1):
            return json.loads(self.done("model", "eval", *words, "--grammar", tiny / "tasks.toml", "--count", count, "--likelihood-count", 1, "--json"))
        alone = eval(tiny, count=2)
        self.assertEqual((alone["against"], alone["divergence"], alone["model"]["drafted_tokens"]), (None, None, 0))
        drafting = eval(tiny, "--draft-tokens", 4, count=2)["model"]
        self.assertTrue(0 < drafting["accepted_tokens"] <= drafting["drafted_tokens"])
        self.assertEqual(drafting["tasks"], alone["model"]["tasks"])
        self.assertAlmostEqual(drafting["likelihood"]["nll"], alone["model"]["likelihood"]["nll"])
        # A trained draft model: the same answers in less than half of the steps.
        helped = eval(tiny, "--drafter", tiny / "drafter", count=2)["model"]
        self.assertEqual(helped["tasks"], alone["model"]["tasks"])
        self.assertEqual(helped["answer_tokens"], alone["model"]["answer_tokens"])
        self.assertGreater(helped["tokens_per_step"], 2.2)
        self.assertEqual(alone["model"]["tokens_per_step"], 1)
        kl = {}
        for kv in ("auto", "bf16", "fp8", "k8v4", "nvfp4"):
            seen = eval(tiny, "--kv-cache-dtype", kv, "--against-kv-cache-dtype", "auto")
            self.assertEqual(seen["model"]["kv_cache"], "fp32" if kv == "auto" else f"{kv}, emulated")
            self.assertEqual(seen["against"]["kv_cache"], "fp32")
            self.assertEqual(seen["against"]["likelihood"], alone["model"]["likelihood"])
            difference = seen["divergence"]
            self.assertAlmostEqual(difference["nll"], seen["model"]["likelihood"]["nll"] - seen["against"]["likelihood"]["nll"])
            self.assertEqual(difference["answers"], 8)
            self.assertTrue(0 < difference["agreed_tokens"] <= difference["answer_tokens"])
            kl[kv] = difference["kl"]
        self.assertEqual(kl["auto"], 0)
        # Beside 4 bits, layers with a window stay in bf16: all of FP8 may cost more than some of 4 bits.
        self.assertTrue(0 < kl["bf16"] < min(kl["fp8"], kl["k8v4"]) and kl["k8v4"] < kl["nvfp4"] < 0.1, kl)
        rotated = eval(tiny, "--kv-cache-dtype", "nvfp4", "--kv-cache-hadamard", "--against-kv-cache-dtype", "nvfp4")
        self.assertEqual(rotated["model"]["kv_cache"], "nvfp4 after a Hadamard rotation, emulated")
        self.assertEqual(rotated["against"]["kv_cache"], "nvfp4, emulated")
        self.assertTrue(0 < rotated["divergence"]["kl"] < 0.1)
        self.refused("--kv-cache-dtype", "model", "eval", tiny, "--kv-cache-hadamard", "--grammar", tiny / "tasks.toml", "--count", 1)
        # The bundled experts are MXFP4, which BF16 holds exactly: only sums of another order differ.
        for weights, low, high in (("bf16", -1e-10, 1e-10), ("nvfp4", 1e-10, 0.1)):
            made = self.folder / f"fake_{weights}"
            self.done("model", "quantize", "--fake", weights, tiny, made)
            difference = eval(made, "--against", tiny)["divergence"]["kl"]
            self.assertTrue(low < difference < high, f"{weights}: {difference}")
        int8 = self.folder / "dense_int8"
        self.done("model", "quantize", "--dense", "int8", tiny, int8)
        difference = eval(int8, "--against", tiny)["divergence"]["kl"]
        self.assertTrue(1e-10 < difference < 1e-3, f"int8: {difference}")
        rounded = eval(tiny, "--activation-dtype", "int8", "--against-activation-dtype", "auto")
        self.assertEqual([rounded[which]["activations"] for which in ("model", "against")], ["int8", "fp32"])
        self.assertEqual(rounded["against"]["likelihood"], alone["model"]["likelihood"])
        self.assertTrue(1e-10 < rounded["divergence"]["kl"] < 1e-2, rounded["divergence"])
        both = eval(int8, "--activation-dtype", "int8", "--against-activation-dtype", "auto")  # inputs of dense matrices, too
        self.assertTrue(1e-10 < both["divergence"]["kl"] < 1e-2, both["divergence"])
        self.refused("fathom model quantize", "model", "eval", self.folder / "fake_bf16", "--activation-dtype", "int8", "--grammar",
                     tiny / "tasks.toml", "--count", 1)
        self.refused("int4", "model", "quantize", "--fake", "int4", tiny, self.folder / "none")
        self.done("model", "make", "--shape", "tiny", "--vocab", 1024, self.folder / "wide")
        for name in ("tokenizer.json", "generation_config.json"):
            (self.folder / "wide" / name).write_bytes((tiny / name).read_bytes())
        self.refused("different vocabularies", "model", "eval", self.folder / "wide", "--against", tiny, "--grammar", tiny / "tasks.toml", "--count", 1)
        self.refused("fathom model eval", "generate", "--model", tiny, "--kv-cache-dtype", "fp8", "--prompt", "hello")


unittest.main(verbosity=2)
