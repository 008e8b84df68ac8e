#!/usr/bin/env python3
"""Variants from outside the tree: `fathom run --candidate FILE`, and `fathom optimize`, whose candidates a scripted server writes.

usage: candidate_test.py FATHOM
"""

import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

FATHOM = sys.argv.pop(1) if len(sys.argv) > 1 else ""


def candidate(body, name="mine", before=""):
    return f"""#include "lab/candidate.h"
#include "dot.h"
{before}
namespace fathom::lab::simd_dot {{
void {name}(const Dot& p, Context& context) {{
  const int64_t n = p.a.extent(0);
  const float *a = p.a.data(), *b = p.b.data();
  {body}
}}
FATHOM_CANDIDATE({name})
}}  // namespace fathom::lab::simd_dot
"""


PARTS = "float s[32] = {}; int64_t i = 0; for (; i + 32 <= n; i += 32) for (int j = 0; j < 32; ++j) s[j] += a[i + j] * b[i + j];"
REST = "float sum = 0; for (; i < n; ++i) sum += a[i] * b[i]; for (float part : s) sum += part; p.out(0) = sum; (void)context;"
RIGHT = candidate(PARTS + REST)
PLAIN = candidate("float sum = 0; for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i]; p.out(0) = sum; (void)context;")
WRONG = candidate("p.out(0) = n > 1 ? 1 : 0; (void)a; (void)b; (void)context;")
BROKEN = candidate("not C++")
CRASH = candidate("*reinterpret_cast<volatile int*>(n - n) = 1; (void)a; (void)b; (void)context;")
# Right once, then the old answer: the inputs change between calls.
REMEMBERS = candidate("static bool known = false; static float kept; static int64_t of; if (!known || of != n) {" + PARTS
                      + REST.replace("p.out(0) = sum", "kept = sum") + " known = true; of = n; } p.out(0) = kept;")
POOL = candidate("double sums[64] = {}; const int64_t pieces = context.pool.threads(); "
                 "context.pool.parallel_for(pieces, 1, [&](int64_t first, int64_t last) { for (int64_t w = first; w < last; ++w) "
                 "for (int64_t i = n * w / pieces; i < n * (w + 1) / pieces; ++i) sums[w] += double(a[i]) * b[i]; }); "
                 "double sum = 0; for (double part : sums) sum += part; p.out(0) = float(sum);")


class InFolder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def fathom(self, *arguments):
        return subprocess.run([FATHOM, *map(str, arguments)], capture_output=True, text=True, timeout=280)

    def file(self, name, text):
        (self.folder / name).write_text(text)
        return self.folder / name


@unittest.skipIf("avx2" not in pathlib.Path("/proc/cpuinfo").read_text(), "experiments are compiled for x86-64-v3")
class CandidateFlag(InFolder):
    def verified(self, *files, experiment="ch08:simd_dot", threads=1):
        flags = [word for file in files for word in ("--candidate", file)]
        done = self.fathom("verify", experiment, *flags, "--candidate-threads", threads, "--json")
        self.assertIn(done.returncode, (0, 2, 6), done.stderr)
        variants = {}
        for point in json.loads(done.stdout)["experiments"][0]["points"]:
            for variant in point["variants"]:
                variants.setdefault(variant["id"], []).append(variant)
        return variants

    def test_right_and_wrong_ones_are_told_apart_and_the_tree_s_are_measured_too(self):
        seen = self.verified(self.file("right.cpp", RIGHT), self.file("wrong.cpp", WRONG), self.file("crash.cpp", CRASH))
        states = {id: {variant["status"] for variant in points} for id, points in seen.items()}
        self.assertEqual(states["scalar"], {"ok"})
        self.assertEqual(states["right"], {"ok"})
        self.assertEqual(states["wrong"], {"wrong"})
        self.assertEqual(states["crash"], {"crashed"})

    def test_one_may_have_all_threads(self):
        seen = self.verified(self.file("pool.cpp", POOL), threads=0)
        self.assertEqual({(variant["status"], variant["threads"]) for variant in seen["pool"]}, {("ok", os.cpu_count())})

    def test_one_that_keeps_its_answer_is_caught_where_calls_are_timed(self):
        done = self.fathom("run", "ch08:simd_dot", "--quick", "--candidate", self.file("remembers.cpp", REMEMBERS), "--artifacts-dir",
                           self.folder / "runs", "--json")
        self.assertEqual(done.returncode, 2, done.stderr)
        variants = {v["id"]: v for v in json.loads(done.stdout)["experiments"][0]["points"][-1]["variants"]}
        self.assertEqual(variants["remembers"]["status"], "wrong")
        self.assertTrue(variants["remembers"]["caught_by"])
        self.assertEqual(variants["highway"]["status"], "ok")
        kept = list(self.folder.glob("runs/*/candidates/remembers.cpp"))
        self.assertEqual([file.read_text() for file in kept], [REMEMBERS])

    def test_what_cannot_be_taken_is_refused_before_anything_runs(self):
        right = self.file("right.cpp", RIGHT)
        for arguments, said in (
            (["run", "ch08:simd_dot", "--candidate", self.file("broken.cpp", BROKEN)], "broken.cpp does not compile"),
            (["run", "ch08:simd_dot", "--candidate", self.folder / "gone.cpp"], "gone.cpp cannot be read"),
            (["run", "ch08:simd_dot", "--candidate", self.file("scalar.cpp", RIGHT)], "has a variant 'scalar' already"),
            (["run", "ch08", "--candidate", right], "needs one experiment"),
            (["run", "ch17:kv_pool", "--candidate", right], "takes no candidates"),
            (["run", "ch08:simd_dot", "--record", "--candidate", right], "keeps no record"),
        ):
            done = self.fathom(*arguments, "--artifacts-dir", self.folder / "runs")
            self.assertEqual(done.returncode, 5, (arguments, done.stderr))
            self.assertIn(said, done.stderr)
        self.assertFalse((self.folder / "runs").exists())

    def test_one_for_another_experiment_is_named_as_that(self):
        other = RIGHT.replace('#include "dot.h"', '#include "experiments/ch08_occupancy/simd_dot/dot.h"')
        seen = self.verified(self.file("other.cpp", other), experiment="ch08:accumulators")
        self.assertIn("the candidate is for another experiment", seen["other"][0]["detail"])


class ScriptedModel:
    """A server of OpenAI's chat API that gives the replies in their order, and keeps the prompts."""

    def __init__(self, replies):
        self.replies, self.prompts, self.paths = list(replies), [], []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self, status, body):
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self):
                self.answer(200, {"object": "list", "data": [{"id": "scripted"}]})

            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.paths.append(self.path)
                outer.prompts.append(asked["messages"][-1]["content"])
                if not outer.replies:
                    return self.answer(429, {"error": {"message": "no more replies"}})
                reply = outer.replies.pop(0)
                if isinstance(reply, dict):
                    return self.answer(200, reply)
                self.answer(200, {"choices": [{"message": {"role": "assistant", "content": reply}}]})

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def block(code):
    return f"The baseline waits for its sum.\n```cpp\n{code}```\n"


@unittest.skipIf("avx2" not in pathlib.Path("/proc/cpuinfo").read_text(), "experiments are compiled for x86-64-v3")
class Optimize(InFolder):
    def optimize(self, model, *flags, runs="runs"):
        return self.fathom("optimize", "ch08:simd_dot", "-a", "n=16384", "--base-url", model.url, "--artifacts-dir", self.folder / runs,
                           *flags)

    def attempts(self):
        (path,) = self.folder.glob("runs/*/attempts.json")
        return path.parent, json.loads(path.read_text())

    def test_the_best_right_candidate_is_measured_again(self):
        with ScriptedModel(["I think.", block(BROKEN), block(WRONG), block(PLAIN), block(RIGHT), block(CRASH)]) as model:
            done = self.optimize(model, "--attempts", 6)
        self.assertEqual(done.returncode, 0, done.stderr)
        folder, told = self.attempts()
        self.assertEqual([attempt["status"] for attempt in told["attempts"]],
                         ["no code", "not compiled", "wrong", "right", "right", "crashed"])
        self.assertEqual(told["best"], "attempt_05.cpp")
        self.assertEqual((folder / "best.cpp").read_text(), RIGHT)
        # What came of one is in the next prompt.
        self.assertEqual(set(model.paths), {"/v1/chat/completions"})
        self.assertIn("struct Dot", model.prompts[0])
        self.assertIn("no ```cpp block", model.prompts[1])
        self.assertIn("does not compile", model.prompts[2])
        self.assertIn("expected", model.prompts[3])
        self.assertNotIn("# The best candidate", model.prompts[3])
        self.assertIn("# The best candidate", model.prompts[4])
        final = json.loads((folder / "results.json").read_text())
        variants = {v["id"]: v for v in final["experiments"][0]["points"][-1]["variants"]}
        self.assertGreater(variants["best"]["ratio"]["lo"], 1.5)
        self.assertEqual(variants["highway"]["status"], "ok")
        self.assertTrue((folder / "report.html").is_file())

    def test_it_stops_at_the_target_and_when_the_server_ends(self):
        with ScriptedModel([block(RIGHT), block(WRONG)]) as model:
            done = self.optimize(model, "--attempts", 3, "--target", 1.2)
        self.assertEqual((done.returncode, len(model.prompts)), (0, 1), done.stderr)
        with ScriptedModel([block(WRONG)]) as model:
            done = self.optimize(model, "--attempts", 1, runs="none_right")
        self.assertEqual(done.returncode, 1)
        self.assertIn("No candidate was right and measured", done.stdout)
        with ScriptedModel([]) as model:
            done = self.optimize(model, "--attempts", 3, "--api-key", "sk-secret", runs="no_server")
        self.assertEqual(done.returncode, 6)
        self.assertEqual(len(model.prompts), 4, "it asks again before it gives up")
        self.assertIn("HTTP 429: no more replies", done.stderr)
        self.assertIn("Ended early", done.stdout)

    def test_odd_answers_of_a_server_are_named(self):
        for reply, said in (({"choices": []}, "no choices[0].message.content"), ({"error": "x"}, "no choices[0].message.content")):
            with ScriptedModel([reply]) as model:
                done = self.optimize(model, "--attempts", 1, runs=f"odd{len(said)}{len(str(reply))}")
            self.assertEqual(done.returncode, 6)
            self.assertIn(said, done.stderr)
        cut = {"choices": [{"message": {"content": None}, "finish_reason": "length"}]}
        with ScriptedModel([cut, block(RIGHT)]) as model:
            done = self.optimize(model, "--attempts", 2, "--max-tokens", 77, runs="cut")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cut off after 77 tokens", model.prompts[1])

    def test_the_verdict_is_about_the_sizes_of_the_search_and_keeps_no_secret(self):
        with ScriptedModel([block(RIGHT)]) as model:
            done = self.fathom("optimize", "ch08:simd_dot", "--attempts", 1, "--base-url", model.url, "--api-key", "sk-secret",
                               "--artifacts-dir", self.folder / "runs")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Timed at n = 262144.", model.prompts[0])
        folder, _ = self.attempts()
        points = json.loads((folder / "results.json").read_text())["experiments"][0]["points"]
        self.assertEqual([point["at"] for point in points], [{"n": 262144}])
        for file in folder.rglob("*"):
            self.assertNotIn(b"sk-secret", file.read_bytes() if file.is_file() else b"", file)

    def test_ctrl_c_keeps_what_there_is_and_starts_nothing_more(self):
        endless = candidate("volatile int64_t i = n; while (i >= 0) { } p.out(0) = a[0] + b[0]; (void)context;")
        with ScriptedModel([block(RIGHT), block(endless)]) as model:
            process = subprocess.Popen([FATHOM, "optimize", "ch08:simd_dot", "-a", "n=16384", "--base-url", model.url,
                                        "--artifacts-dir", str(self.folder / "runs")], stdout=subprocess.PIPE, text=True)
            while len(model.prompts) < 2 or not list(self.folder.glob("runs/*/attempt_02.cpp")):
                self.assertIsNone(process.poll())
                time.sleep(0.05)
            time.sleep(5)  # it is compiled, and hangs in its first call
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 6, out)
        self.assertIn("best.cpp", out)
        folder, _ = self.attempts()
        self.assertEqual((folder / "best.cpp").read_text(), RIGHT)
        self.assertFalse((folder / "report.html").exists())

    def test_the_prompt_can_be_seen_and_replaced(self):
        own = self.file("prompt.md", "Use no loops.\n")
        done = self.fathom("optimize", "ch08:simd_dot", "--print-prompt", "--prompt", own)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("Use no loops."))
        self.assertIn("struct Dot", done.stdout)

    def test_mistakes_are_named(self):
        for arguments, said in (
            (["ch08:simd_dot"], "--base-url"),
            (["ch08", "--print-prompt"], "takes one whole experiment"),
            (["ch08:simd_dot/highway", "--print-prompt"], "takes one whole experiment"),
            (["ch17:kv_pool", "--print-prompt"], "takes no candidates"),
            (["ch08:simd_dot", "--prompt", self.folder / "gone", "--print-prompt"], "cannot be read"),
        ):
            done = self.fathom("optimize", *arguments)
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
