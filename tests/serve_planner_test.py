"""The planner of the router: workers move between prefill and decode while they serve, and no answer changes.

Usage: serve_planner_test.py FATHOM
"""

import sys
import unittest

from serve_process import BUNDLED, until
from serve_workers import Streamed, Workers, asked, long_prompt, status


class Planner(Workers):
    def roles(self):
        return sorted(worker["role"] for worker in status(self.router)["workers"])

    def test_workers_follow_the_load_and_no_answer_is_lost(self):
        workers = [self.begin(role, "--max-num-seqs", 4) for role in ("prefill", "prefill", "decode")]
        self.ready(*workers)
        self.router = self.begin("router", "--planner", "--adjustment-interval", 0.05,
                                 *(f for w in workers for f in ("--peer", f"127.0.0.1:{w.port}")))
        self.ready(self.router)
        until(lambda: len(status(workers[2])["peers"]) == 2, "the decode worker knows whom to ask")
        # Answers only, more than a decode worker has places for.
        answers = [{**asked(n, 1000), "prompt": f"Once {n}"} for n in range(6)]
        for body in answers:
            self.wanted(body)
        streams = [Streamed(self.router, body) for body in answers]
        until(lambda: self.roles() == ["decode", "decode", "prefill"], "a prefill worker writes answers now")
        # It takes answers on, while the first ones still run where they are.
        more = [{**asked(n, 60), "prompt": f"Twice {n}"} for n in range(2)]
        for body in more:
            self.wanted(body)
        streams += [Streamed(self.router, body) for body in more]
        for stream, body in zip(streams, answers + more):
            self.check_stream(stream, body)
        (moved,) = (w for w in workers[:2] if status(w)["role"] == "decode")
        self.assertGreaterEqual(moved.metric("fathom_generated_tokens_total"), 60)
        # Prompts only.
        prompts = [{**asked(n, 1), "prompt": long_prompt(n, 45)} for n in range(100, 110)]
        for body in prompts:
            self.wanted(body)
        streams = [Streamed(self.router, body) for body in prompts]
        until(lambda: self.roles() == ["decode", "prefill", "prefill"], "a decode worker computes prompts now")
        for stream, body in zip(streams, prompts):
            self.check_stream(stream, body)
        said = status(self.router)
        self.assertEqual((said["role_changes"], said["replays"]), (2, 0))
        self.no_leak(*workers)
        (decode,) = (w for w in workers if status(w)["role"] == "decode")
        self.assertEqual(len(status(decode)["peers"]), 2)


if __name__ == "__main__":
    Planner.FATHOM = sys.argv.pop(1)
    assert BUNDLED.exists()
    unittest.main(verbosity=2)
