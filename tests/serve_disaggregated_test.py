"""Prefill, decode and router as processes of their own: the answers of one engine, and workers that are killed or
stopped in each state of a request (the table of docs/serving.md).

Usage: serve_disaggregated_test.py FATHOM
"""

import json
import signal
import sys
import time
import unittest

from serve_process import BUNDLED, CHAT, COMPLETIONS, until
from serve_workers import RECOVERY_S, Streamed, Workers, answer_of, asked, long_prompt, status


class Disaggregated(Workers):
    """Workers and a router anew for each test."""

    def test_answers_are_those_of_one_engine(self):
        for transfer in ("tcp", "shm"):
            prefill, (decode,), router = self.pair("--transfer", transfer)
            bodies = [asked(1), asked(1), asked(2, temperature=1, seed=7, top_p=0.9),
                      asked(3, temperature=0.8, seed=1, frequency_penalty=0.7, presence_penalty=0.4),
                      {**asked(4), "prompt": "Short."}]
            for body in bodies:
                self.assertEqual(answer_of(router.ask(COMPLETIONS, **body)), answer_of(self.wanted(body)))
            offload = status(decode)["offload"]
            self.assertEqual((offload["asked"], offload["landed"], offload["failed"]), (3, 3, 0), transfer)
            self.assertGreater(offload["blocks"], 3 * 16)
            # The decode worker computed no prompt but the rest behind the last whole page; the second was cached.
            hits = decode.metric("fathom_prefix_hit_tokens_total")
            self.assertGreater(hits, 3 * 256)
            # Three prompts came from the prefill worker; the repeated one and the short one did not.
            received, cached = (next(value for labels, value in decode.metrics()["fathom_prompt_tokens_by_source_total"].items()
                                     if ("source", source) in labels)
                                for source in ("external_kv_transfer", "local_cache_hit"))
            self.assertGreater(received, 3 * 256)
            self.assertGreater(cached, 256)
            self.assertEqual(received + cached, hits)
            # Chat, tools and formats pass through the router too.
            chat = {"messages": [{"role": "user", "content": "What is 12 + 30?"}], "temperature": 0, "max_tokens": 40}
            schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {
                "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}}}
            for more in ({}, {"response_format": schema}):
                ours, theirs = (s.ask(CHAT, **chat, **more)["choices"][0] for s in (router, self.reference))
                self.assertEqual(ours["message"], theirs["message"])
            self.no_leak(decode, prefill)
            for server in (router, decode, prefill):
                server.__exit__()

    def test_a_killed_decode_worker_is_replaced_from_the_journal(self):
        """SIGKILL in the middle of streams, greedy and sampled; then the prefill worker, the last one, goes on."""
        _, decode, router = self.pair(decoders=2)
        bodies = [asked(10, 300), asked(11, 300, temperature=1, seed=3), {**asked(12, 300), "prompt": "Once"}]
        for body in bodies:
            self.wanted(body)
        for victim in decode:
            streams = [Streamed(router, body) for body in bodies]
            for stream in streams:
                stream.until_token(20)
            before = status(router)["replays"]
            victim.signal(signal.SIGKILL)
            self.replayed(router, before)
            for stream, body in zip(streams, bodies):
                self.check_stream(stream, body)
        self.assertEqual(status(router)["journal"], 0)

    def test_a_prefill_worker_that_dies_or_hangs_costs_no_request(self):
        """Killed while it computes; stopped while it computes, and woken after the prompt was computed here."""
        prefill, (decode,), router = self.pair()
        body = {**asked(20), "prompt": long_prompt(20, 45)}
        self.wanted(body)
        stream = Streamed(router, body)
        until(lambda: status(prefill)["prefill_jobs"], "a prompt is computed for the decode worker")
        prefill.signal(signal.SIGSTOP)
        self.check_stream(stream, body)
        self.assertEqual(status(decode)["offload"]["landed"], 0)
        prefill.signal(signal.SIGCONT)  # what it still writes is refused
        self.no_leak(decode, prefill)
        other = {**asked(21), "prompt": long_prompt(21, 45)}
        self.wanted(other)
        time.sleep(2)  # the hung worker is not asked at once
        stream = Streamed(router, other)
        until(lambda: status(prefill)["prefill_jobs"], "a prompt is computed for the decode worker")
        prefill.signal(signal.SIGKILL)
        self.check_stream(stream, other)
        self.no_leak(decode)

    def test_a_stopped_decode_worker_is_fenced(self):
        """Its requests go on elsewhere; what it says after it wakes up is dropped, and it serves again."""
        _, decode, router = self.pair(decoders=2)
        body = asked(30, 400)
        self.wanted(body)
        stream = Streamed(router, body).until_token(20)
        busy = next(d for d in decode if status(d)["running"])
        busy.signal(signal.SIGSTOP)
        self.replayed(router, 0)
        self.check_stream(stream, body)
        busy.signal(signal.SIGCONT)
        until(lambda: all(w["alive"] for w in status(router)["workers"]), "the worker is back")
        self.no_leak(*decode)
        self.assertEqual(answer_of(router.ask(COMPLETIONS, **asked(1))), answer_of(self.wanted(asked(1))))

    def test_a_decode_worker_that_dies_while_its_prompt_is_computed(self):
        """The prefill worker's job ends at once, and it answers the request itself."""
        prefill, (decode,), router = self.pair()
        body = {**asked(40), "prompt": long_prompt(40, 45)}
        self.wanted(body)
        stream = Streamed(router, body)
        until(lambda: status(prefill)["prefill_jobs"], "a prompt is computed for the decode worker")
        decode.signal(signal.SIGKILL)
        until(lambda: status(prefill)["prefill_jobs"] == 0, "the job has ended", RECOVERY_S)
        self.check_stream(stream, body)
        self.no_leak(prefill)

    def test_a_prefill_worker_takes_ten_prompts_at_once(self):
        """The offload rule: the rest is computed by the decode worker."""
        prefill, (decode,), router = self.pair()
        bodies = [asked(60 + i, 4) for i in range(12)]
        streams = [Streamed(router, body) for body in bodies]
        most = 0
        while any(stream.is_alive() for stream in streams):
            most = max(most, status(prefill)["prefill_jobs"])
            time.sleep(0.01)
        for stream, body in zip(streams, bodies):
            self.check_stream(stream, body)
        offload = status(decode)["offload"]
        self.assertLessEqual(most, 10)
        self.assertEqual(offload["asked"], 12)
        self.assertGreaterEqual(offload["landed"], 10)
        self.assertGreaterEqual(offload["failed"], 1)
        self.no_leak(decode, prefill)

    def test_the_router_decides_where_prompts_are_computed(self):
        """--routing-policy dynamic: only the prompt of more than 400 tokens goes to the prefill worker."""
        prefill, (decode,), _ = self.pair()
        router = self.begin("router", "--routing-policy", "dynamic", "--max-local-prefill-length", 400,
                            *(f for w in (decode, prefill) for f in ("--peer", f"127.0.0.1:{w.port}")))
        self.ready(router)
        until(lambda: all(w["alive"] for w in status(router)["workers"]), "the router knows its workers")
        for body in (asked(70), {**asked(71), "prompt": long_prompt(71, 30)}):
            self.assertEqual(answer_of(router.ask(COMPLETIONS, **body)), answer_of(self.wanted(body)))
        offload = status(decode)["offload"]
        self.assertEqual((offload["asked"], offload["landed"]), (1, 1))
        decisions = {name: count for name, count in status(router)["decisions"].items() if count}
        self.assertEqual(decisions, {"local_short": 1, "remote_long": 1})
        counted = {dict(labels)["decision"]: value for labels, value in
                   router.metrics()["fathom_router_decisions_total"].items() if value}
        self.assertEqual(counted, decisions)
        self.assertNotIn("fathom_router_decisions_total", decode.metrics())

    def test_a_client_that_leaves_frees_everything(self):
        prefill, (decode,), router = self.pair()
        for body in ({**asked(50), "prompt": long_prompt(50, 45)}, asked(51, 3000)):
            with router.socket() as gone:
                data = json.dumps({**body, "stream": True}).encode()
                gone.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                             b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
                until(lambda: status(router)["journal"], "the request is in the journal")
                until(lambda: status(prefill)["prefill_jobs"] or status(decode)["running"], "a worker has it")
            until(lambda: status(router)["journal"] == 0, "the journal is empty")
            self.no_leak(decode, prefill)


if __name__ == "__main__":
    Disaggregated.FATHOM = sys.argv.pop(1)
    assert BUNDLED.exists()
    unittest.main(verbosity=2)
