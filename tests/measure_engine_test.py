"""`tools/measure_engine --beside` on CPUs: the real `fathom serve` with the bundled model, and beside it a `llama-server`
that this file writes, which answers by OpenAI's API and takes some time for each token.

usage: measure_engine_test.py FATHOM
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

FATHOM = os.path.abspath(sys.argv.pop(1))
ROOT = pathlib.Path(__file__).resolve().parent.parent
STUB = f"#!{sys.executable}" + """
import http.server, json, os, sys, time
if "--version" in sys.argv:
    sys.exit(print("stub 1"))
TOKEN_S, DIES_AT, SHORT = (float(os.environ.get(name, 0)) for name in ("STUB_TOKEN_S", "STUB_DIES_AT", "STUB_SHORT"))
answered = 0

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, body, kind="application/json"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(json.dumps({"data": [{"id": "stub"}]}).encode())

    def do_POST(self):
        global answered
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answered += 1
        if answered == DIES_AT:
            print("out of memory, says the stub", file=sys.stderr, flush=True)
            os._exit(3)
        tokens = asked["max_tokens"]
        prompts = len(asked["prompt"]) if isinstance(asked["prompt"][0], list) else 1
        usage = {"prompt_tokens": 1, "completion_tokens": prompts * tokens - int(SHORT)}
        if not asked.get("stream"):
            time.sleep(tokens * TOKEN_S)
            return self.reply(json.dumps({"choices": [], "usage": usage}).encode())
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        start = time.monotonic()
        for i in range(tokens):
            time.sleep(max(0, start + (i + 1) * TOKEN_S - time.monotonic()))
            self.event({"choices": [{"text": "x", "finish_reason": "length" if i + 1 == tokens else None}]})
        self.event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\\n\\n")

    def event(self, event):
        self.wfile.write(f"data: {json.dumps(event)}\\n\\n".encode())

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


class MeasureEngine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # The load at a rate takes 6 s for each engine and round, in which hardly anything runs: beside the other tests.
        cls.all_loads = cls()
        cls.all_loads.setUp()
        cls.addClassCleanup(cls.all_loads.doCleanups)
        cls.all_loads.install_stub()
        cls.all_loads.process = cls.all_loads.begin("--beside", "vllm,transformers,llama.cpp", "--repeats", "1", STUB_TOKEN_S="0.005")
        cls.all_loads.addCleanup(cls.all_loads.end)

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.model, self.bin, self.out = self.folder / "model", self.folder / "bin", self.folder / "out.json"
        shutil.copytree(ROOT / "models" / "tiny", self.model)
        self.bin.mkdir()

    def install_stub(self):
        (self.bin / "llama-server").write_text(STUB)
        (self.bin / "llama-server").chmod(0o755)
        (self.model / "any.gguf").write_text("")

    def begin(self, *flags, **env):
        return subprocess.Popen([sys.executable, ROOT / "tools/measure_engine", FATHOM, self.model, self.out, "--device", "cpu", "--quick",
                                 "--batches", "1,2", "--prompt-len", "8", "--prompts", "4", "--rate", "2", *flags],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
                                env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", **env})

    def end(self):
        self.process.terminate()  # its engines end with it
        self.process.communicate()

    @staticmethod
    def result(process):
        out, errors = process.communicate(timeout=250)
        return subprocess.CompletedProcess(process.args, process.returncode, out, errors)

    def measure(self, *flags, **env):
        self.process = self.begin(*flags, **env)
        self.addCleanup(self.end)
        return self.result(self.process)

    def record(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["bin", "model", "out.json"])
        return json.loads(self.out.read_text())

    def engines(self, record):
        return {engine["name"]: engine for engine in record["beside"]["engines"]}

    def test_two_engines_and_two_that_are_not_here(self):
        record = self.all_loads.record(self.result(self.all_loads.process))
        engines = self.engines(record)
        self.assertEqual({name: engine["status"] for name, engine in engines.items()},
                         {"fathom": "measured", "llama.cpp": "measured", "vllm": "skipped", "transformers": "skipped"})
        self.assertIn("GPU", engines["vllm"]["why_not"])
        self.assertEqual(engines["llama.cpp"]["version"], "stub 1")
        self.assertIn("--parallel 2", engines["llama.cpp"]["settings"])
        self.assertEqual([load["load"] for load in record["beside"]["loads"]],
                         ["decode_1", "decode_2", "prefill_1", "prefill_2", "serve_at_once", "serve_at_rate"])
        for load in record["beside"]["loads"]:
            self.assertEqual(load["repeats"], 1, load)
            for quantity in load["quantities"].values():
                self.assertEqual((list(quantity["engines"]), list(quantity["ratios"])), (["fathom", "llama.cpp"], ["llama.cpp"]), load)

    def test_a_rate_that_is_known(self):
        self.install_stub()
        record = self.record(self.measure("--beside", "llama.cpp", "--loads", "decode", "--batches", "2", STUB_TOKEN_S="0.005"))
        (load,) = record["beside"]["loads"]
        self.assertEqual(load["repeats"], 3, load)
        # The stub gives 400 tokens a second: one every 5 ms for each of two sequences.
        decode = load["quantities"]["decode_tokens_per_s"]
        self.assertTrue(200 < decode["engines"]["llama.cpp"]["median"] < 450, decode)
        ratio = decode["ratios"]["llama.cpp"]
        ours, theirs = (decode["engines"][name]["samples"] for name in ("fathom", "llama.cpp"))
        for said, a, b in zip(ratio["samples"], ours, theirs, strict=True):
            self.assertAlmostEqual(said * b / a, 1, places=4)
        self.assertEqual((ratio["lo"], ratio["hi"]), (min(ratio["samples"]), max(ratio["samples"])))

    def test_the_loads_and_our_flags_are_chosen(self):
        self.install_stub()
        record = self.record(self.measure("--beside", "llama.cpp", "--repeats", "1", "--loads", "decode,prefill",
                                          "--fathom-flags=--activation-dtype int8", STUB_TOKEN_S="0.002"))
        self.assertEqual([load["load"] for load in record["beside"]["loads"]], ["decode_1", "decode_2", "prefill_1", "prefill_2"])
        self.assertTrue(self.engines(record)["fathom"]["settings"].endswith("--activation-dtype int8"))

    def test_not_installed_and_without_a_file_for_it(self):
        engines = self.engines(self.record(self.measure("--beside", "llama.cpp", "--repeats", "1", "--loads", "decode", "--batches", "1")))
        self.assertEqual(engines["llama.cpp"], {"name": "llama.cpp", "status": "skipped",
                                                "why_not": "not installed: no llama-server on PATH"})
        self.install_stub()
        (self.model / "any.gguf").unlink()
        engines = self.engines(self.record(self.measure("--beside", "llama.cpp", "--repeats", "1", "--loads", "decode", "--batches", "1")))
        self.assertIn("tools/make_gguf", engines["llama.cpp"]["why_not"])

    def test_an_engine_that_dies_between_two_loads_keeps_what_it_gave(self):
        self.install_stub()
        record = self.record(self.measure("--beside", "llama.cpp", "--repeats", "2", "--loads", "decode,prefill", STUB_DIES_AT="9", STUB_TOKEN_S="0.002"))
        dead = self.engines(record)["llama.cpp"]
        self.assertEqual(dead["status"], "failed")
        self.assertIn("decode_2", dead["why_not"])
        self.assertIn("status 3: out of memory, says the stub", dead["why_not"])
        loads = {load["load"]: load for load in record["beside"]["loads"]}
        self.assertEqual(list(loads["decode_1"]["quantities"]["decode_tokens_per_s"]["ratios"]), ["llama.cpp"])
        self.assertEqual(list(loads["prefill_1"]["quantities"]["prefill_tokens_per_s"]["engines"]), ["fathom"])

    def test_an_engine_that_stops_early_is_not_measured(self):
        self.install_stub()
        dead = self.engines(self.record(self.measure("--beside", "llama.cpp", "--repeats", "1", "--loads", "decode", "--batches", "1", STUB_SHORT="1", STUB_TOKEN_S="0.002")))["llama.cpp"]
        self.assertEqual(dead["status"], "failed")
        self.assertRegex(dead["why_not"], "gave 191 of 192 tokens for a prompt")

    def test_a_budget_that_ends_first(self):
        self.install_stub()
        record = self.record(self.measure("--beside", "llama.cpp", "--budget", "6", STUB_TOKEN_S="0.01"))
        self.assertLess(record["took_s"], 30)
        self.assertTrue(any(load["repeats"] < 3 and "budget of 6 s" in load["why_fewer"] for load in record["beside"]["loads"]), record)

    def test_nothing_is_written_where_nothing_was_measured(self):
        result = self.measure("--budget", "0.001")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("nothing is written", result.stderr)
        self.assertFalse(self.out.exists())

    def test_bad_flags(self):
        for flags, said in ((("--beside", "sglang"), "sglang"), (("--beside", "vllm,vllm"), "each once"), (("--budget", "-1"), "--budget"),
                            (("--repeats", "0"), "--repeats"), (("--batches", "1,x"), "--batches"), (("--loads", "all"), "--loads"), (("--wat",), "--wat")):
            result = self.measure(*flags)
            self.assertEqual(result.returncode, 5, result.stderr)
            self.assertIn(said, result.stderr.splitlines()[-1])
            self.assertFalse(self.out.exists())


class MakeGguf(unittest.TestCase):
    """The file holds the checkpoint's weights exactly, by the decoders of Python's gguf."""

    def setUp(self):
        try:
            import gguf
            import numpy
        except ImportError as missing:
            self.skipTest(f"needs_library: {missing}")
        self.gguf, self.numpy = gguf, numpy
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def read(self, model):
        out = self.folder / "out.gguf"
        subprocess.run([sys.executable, ROOT / "tools/make_gguf", model, out], check=True, timeout=100)
        decode = self.gguf.quants.dequantize
        return {tensor.name: (tensor.tensor_type.name, decode(tensor.data, tensor.tensor_type)) for tensor in self.gguf.GGUFReader(out).tensors}

    def tensor(self, model, name, dtype):
        data = (model / "model.safetensors").read_bytes()
        length = int.from_bytes(data[:8], "little")
        about = json.loads(data[8:8 + length])[name]
        begin, end = (8 + length + at for at in about["data_offsets"])
        return self.numpy.frombuffer(data[begin:end], dtype).reshape(about["shape"])

    def bf16(self, model, name):
        return (self.tensor(model, name, "u2").astype("u4") << 16).view("f4")

    def test_every_format_is_exact(self):
        np, tiny, packed = self.numpy, ROOT / "models" / "tiny", self.folder / "int8"
        subprocess.run([FATHOM, "model", "quantize", "--dense", "int8", tiny, packed], check=True, timeout=100, stdout=subprocess.DEVNULL)
        plain, int8 = self.read(tiny), self.read(packed)
        self.assertEqual([kinds["output.weight"][0] for kinds in (plain, int8)], ["BF16", "Q8_0"])
        np.testing.assert_array_equal(plain["output.weight"][1], self.bf16(tiny, "lm_head.weight"))
        scales = np.repeat(self.bf16(packed, "lm_head.weight_scale"), 32, 1)
        np.testing.assert_array_equal(int8["output.weight"][1], self.tensor(packed, "lm_head.weight", "i1") * scales)
        e2m1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], "f4")
        for half, name in ((0, "gate"), (1, "up")):
            blocks, scales = (self.tensor(tiny, f"model.layers.3.mlp.experts.gate_up_proj_{part}", "u1")[:, half::2] for part in ("blocks", "scales"))
            numbers = e2m1[np.stack([blocks & 15, blocks >> 4], -1)].reshape(*scales.shape, 32)
            expected = np.ldexp(numbers, scales[..., None].astype("i4") - 127).reshape(*scales.shape[:2], -1)
            for made in (plain, int8):
                self.assertEqual(made[f"blk.3.ffn_{name}_exps.weight"][0], "MXFP4")
                np.testing.assert_array_equal(made[f"blk.3.ffn_{name}_exps.weight"][1], expected)


if __name__ == "__main__":
    unittest.main()
