"""`fathom serve` under load: thousands of streams at once, ten times its capacity, and a mix of everything for N
seconds. Checks that memory is bounded, that every request is answered or refused, and that no state remains. Prints
measured rates; speed decides no test.

usage: serve_load_test.py FATHOM [--seconds N]     N: seconds of the mixed load, default 20
"""

import asyncio
import itertools
import json
import os
import random
import resource
import sys
import time
import unittest

from serve_process import CHAT, COMPLETIONS, DEADLINE_S, RESPONSES, Server, endless, until, user

FATHOM = os.path.abspath(sys.argv.pop(1))
SECONDS = float(sys.argv.pop(sys.argv.index("--seconds") + 1)) if "--seconds" in sys.argv else 20
if "--seconds" in sys.argv:
    sys.argv.remove("--seconds")
STREAMS = 2000
MIB = 1 << 20
resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)


async def post(server, path, body, first=None):
    """(status, body of the answer, seconds). Calls `first` when the head and the first bytes of the body have
    arrived; a true result closes the connection."""
    begin = time.monotonic()
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
                     f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
        got = await asyncio.wait_for(reader.read(4096), DEADLINE_S)
        if first and await first():
            return int(head.split()[1]), got, time.monotonic() - begin
        got += await asyncio.wait_for(reader.read(), 5 * DEADLINE_S)
        return int(head.split()[1]), got, time.monotonic() - begin
    finally:
        writer.close()
        try:
            await writer.wait_closed()
        except OSError:  # the connection was dropped
            pass


def is_whole(status, got):
    return status == 200 and got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def short(text="Go on.", tokens=8, **more):
    return {"messages": user(text), "ignore_eos": True, "max_tokens": tokens, "temperature": 0, **more}


class Load(unittest.TestCase):
    def setUp(self):
        self.assertGreaterEqual(resource.getrlimit(resource.RLIMIT_NOFILE)[0], STREAMS + 200,
                                "too few open files are allowed for this test: see `ulimit -Hn`")

    def warm(self, server):
        """Touches all memory that a server keeps: untouched pages of the KV cache are not resident yet."""
        for tokens in (8, 200):
            server.ask(CHAT, **short(tokens=tokens))

    def report(self, what, **values):
        print(f"  {what}: " + ", ".join(f"{name} {value:.1f}" if isinstance(value, float) else f"{name} {value}"
                                        for name, value in values.items()), flush=True)

    def streams_at_once(self, held, *flags):
        """Opens all at the same time, then drops the first `held`, which would never end, and lets the others
        finish."""
        with Server(FATHOM, "--max-queued-requests", 4000, "--max-connections", 4096, *flags) as server:
            self.warm(server)
            before = server.resident_bytes()

            def everybody_runs():
                gauges = server.gauges()
                return gauges if gauges["requests_running"] == STREAMS else None

            async def all_at_once():
                opened, peak, present = 0, 0, None
                everybody = asyncio.Event()

                async def first(holds):
                    nonlocal opened, peak, present
                    opened += 1
                    peak = max(peak, server.resident_bytes())
                    if opened == STREAMS:
                        present = await asyncio.to_thread(server.gauges)
                        if held == STREAMS:
                            present = await asyncio.to_thread(until, everybody_runs, "all of them run", 5 * DEADLINE_S)
                        everybody.set()
                    if holds:
                        await asyncio.wait_for(everybody.wait(), 5 * DEADLINE_S)
                    return holds

                async def one(i):
                    holds = i < held
                    body = endless(max_tokens=3000) if holds else short(f"What is {i} + {i}?")
                    body["stream"] = True
                    return holds, await post(server, CHAT, body, lambda: first(holds))

                jobs = []
                for i in range(STREAMS):
                    while i == held and opened < held:  # a short answer that starts earlier would end too soon
                        await asyncio.sleep(0.01)
                    jobs.append(asyncio.create_task(one(i)))
                    if i % 50 == 0:
                        await asyncio.sleep(0)
                results = await asyncio.gather(*jobs)
                peak = max(peak, server.resident_bytes())
                self.assertEqual(present["requests_running"] + present["requests_waiting"], STREAMS, present)
                for holds, (status, got, _) in results:
                    self.assertEqual(status, 200, got)
                    if not holds:
                        self.assertTrue(is_whole(status, got), got[-300:])
                return peak, present

            begin = time.monotonic()
            peak, present = asyncio.run(all_at_once())
            seconds = time.monotonic() - begin
            server.seconds_until_idle()
            self.assertEqual(server.ask(CHAT, **short())["usage"]["completion_tokens"], 8)
            self.report(f"{STREAMS} streams", running=present["requests_running"], before_MiB=before / MIB, peak_MiB=peak / MIB,
                        more_MiB=(peak - before) / MIB, after_MiB=server.resident_bytes() / MIB, seconds=seconds)
            self.assertLess(peak - before, 400 * 10**6)

    def test_streams_at_once_most_of_them_queued(self):
        self.streams_at_once(64)  # as many as run at once

    def test_streams_at_once_all_of_them_running(self):
        self.streams_at_once(STREAMS, "--max-num-seqs", STREAMS, "--kv-tokens", 131072, "--max-num-batched-tokens", 8192)

    def test_clients_that_do_not_read(self):
        # The server buffers up to 256 KiB for each client; the full output is about ten times as much.
        clients = 100
        body = json.dumps(endless(stream=True, logprobs=True, top_logprobs=20, max_tokens=2000))
        with Server(FATHOM, "--kv-tokens", 262144, "--max-num-seqs", clients) as server:
            self.warm(server)
            before = peak = server.resident_bytes()
            connections = [server.socket(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                                         f"Content-Length: {len(body)}\r\n\r\n{body}".encode(), received=4096) for _ in range(clients)]
            until(lambda: server.metric("fathom_requests_running") == clients, "all run")
            while any(server.gauges().values()):
                peak = max(peak, server.resident_bytes())
                time.sleep(0.02)
            dropped = server.metric("fathom_client_disconnects_total")
            self.report("clients that do not read", before_MiB=before / MIB, peak_MiB=peak / MIB, dropped=int(dropped))
            self.assertEqual(dropped, clients)
            self.assertLess(peak - before, clients * MIB)
            for connection in connections:
                connection.close()

    def test_ten_times_too_much(self):
        seconds, slots, queue = 6, 8, 32
        with Server(FATHOM, "--max-num-seqs", slots, "--max-queued-requests", queue) as server:
            self.warm(server)
            before = server.resident_bytes()

            async def capacity():
                """Requests per second with every slot taken and no request rejected."""
                begin, done = time.monotonic(), 0

                async def worker():
                    nonlocal done
                    while time.monotonic() < begin + 2:
                        status, got, _ = await post(server, CHAT, short(tokens=32, stream=True))
                        self.assertTrue(is_whole(status, got), got[-300:])
                        done += 1
                await asyncio.gather(*(worker() for _ in range(2 * slots)))
                return done / (time.monotonic() - begin)

            async def overload(rate):
                peak, jobs, numbers = 0, set(), itertools.count()
                results = []

                async def one():
                    i = next(numbers)
                    try:
                        results.append(await post(server, CHAT, short(f"What is {i} + 1?", 32, stream=True)))
                    except (OSError, asyncio.IncompleteReadError) as error:
                        results.append((repr(error), b"", 0.0))
                begin = time.monotonic()
                while time.monotonic() < begin + seconds:
                    due = int((time.monotonic() - begin) * rate) - len(results) - len(jobs)
                    for _ in range(min(due, 1500 - len(jobs))):  # the client is limited by file descriptors
                        job = asyncio.create_task(one())
                        jobs.add(job)
                        job.add_done_callback(jobs.discard)
                    peak = max(peak, server.resident_bytes())
                    await asyncio.sleep(0.005)
                await asyncio.gather(*jobs)
                return results, max(peak, server.resident_bytes())

            saturation = asyncio.run(capacity())
            results, peak = asyncio.run(overload(10 * saturation))
            statuses = {}
            for status, _, _ in results:
                statuses[status] = statuses.get(status, 0) + 1
            self.assertEqual(statuses.keys(), {200, 429}, statuses)
            for status, got, _ in results:
                self.assertTrue(is_whole(status, got) or b'"code":429' in got, got[-300:])
            times = {status: sorted(s * 1e3 for st, _, s in results if st == status) for status in (200, 429)}
            # Throughput would equal the saturation rate if clients did not share the processor.
            self.report("overload", offered_per_s=len(results) / seconds, saturation_per_s=saturation, **{
                f"of_{status}": count for status, count in statuses.items()}, **{
                f"{status}_{name}_ms": times[status][int(q * (len(times[status]) - 1))]
                for status in times for name, q in (("median", .5), ("p99", .99))},
                before_MiB=before / MIB, peak_MiB=peak / MIB)
            self.assertGreater(statuses[429], statuses[200])
            self.assertGreater(statuses[200], slots + queue)
            self.assertLess(times[429][len(times[429]) // 2], times[200][len(times[200]) // 2])
            self.assertLess(peak - before, 128 * MIB)
            server.seconds_until_idle()
            self.assertGreater(asyncio.run(capacity()), saturation / 4)  # it has recovered
            server.seconds_until_idle()

    def test_a_mix_of_everything(self):
        with Server(FATHOM, "--max-num-seqs", 16, "--max-queued-requests", 64, "--kv-tokens", 8192, "--max-model-len", 2048,
                    "--draft-tokens", 3) as server:
            self.warm(server)
            counts, series = {}, []
            end = time.monotonic() + SECONDS

            def count(name):
                counts[name] = counts.get(name, 0) + 1

            def body(rng):
                """(name, path, body, status)"""
                number = rng.randrange(10**9)  # every request is new, so nothing may be kept for each
                schema = {"type": "object", "required": ["a"], "additionalProperties": False, "properties": {
                    "a": {"enum": [f"x{number}", "y"]}, f"b{number}": {"type": "integer", "maximum": 99}}}
                text = f"What is {number} + {number % 977}?"
                tool = {"type": "function", "function": {"name": f"f{number}", "parameters": schema}}
                made = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
                prompt = " ".join(rng.choice(("red", "blue", "cat", "dog", "12", "7")) for _ in range(rng.randrange(10, 900)))
                return rng.choice((
                    ("chat", CHAT, {"messages": user(text), "max_tokens": 100}, 200),
                    ("stream", CHAT, {"messages": user(text), "max_tokens": 100, "stream": True, "logprobs": True,
                                      "top_logprobs": 5, "stream_options": {"include_usage": True}}, 200),
                    ("n", CHAT, {"messages": user(text), "max_tokens": 30, "n": 4, "seed": number, "stream": True}, 200),
                    ("long", COMPLETIONS, {"prompt": prompt, "max_tokens": 20, "stop": ["cat", "42"], "echo": True,
                                           "temperature": 2, "cache_salt": f"salt {number % 3}"}, 200),
                    ("biased", COMPLETIONS, {"prompt": text, "max_tokens": 40, "logit_bias": {"17": 5, "99": -100},
                                             "repetition_penalty": 1.3, "presence_penalty": 0.5, "priority": number % 3}, 200),
                    ("tool", CHAT, {"messages": user(text), "tools": [tool], "tool_choice": "required", "max_tokens": 100,
                                    "stream": bool(number % 2)}, 200),
                    ("schema", CHAT, {"messages": user(text), "response_format": made, "max_tokens": 100}, 200),
                    ("response", RESPONSES, {"input": text, "max_output_tokens": 60, "stream": True}, 200),
                    ("tokenize", "/tokenize", {"messages": user(text + prompt)}, 200),
                    ("wrong", CHAT, {"messages": user(text), "temperature": -number}, 400),
                    ("too long", COMPLETIONS, {"prompt": "cat " * 5000, "max_tokens": 5}, 400),
                    ("no path", f"/v1/{number}", {}, 404),
                    ("gone", CHAT, {**endless(stream=True, max_tokens=1500)}, 200),
                    ("gone early", CHAT, {"messages": user(text + prompt), "max_tokens": 50, "n": 2}, 200)))

            async def worker(seed):
                rng = random.Random(seed)
                while time.monotonic() < end:
                    name, path, request, wanted = body(rng)
                    if name == "gone early":
                        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                        data = json.dumps(request).encode()
                        writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
                                     f"{len(data)}\r\n\r\n".encode() + data)
                        await asyncio.sleep(rng.random() / 10)
                        writer.close()
                        count(name)
                        continue

                    async def first():
                        await asyncio.sleep(rng.random() / 10)
                        return True
                    status, got, _ = await post(server, path, request, first if name == "gone" else None)
                    self.assertIn(status, (wanted, 429), (name, got[-500:]))
                    if status == 200 and request.get("stream") and name != "gone":
                        self.assertTrue(got.endswith(b"\r\n0\r\n\r\n"), (name, got[-300:]))
                        self.assertNotIn(b'"error":{', got)
                    count(name if status == wanted else "429")

            async def watch():
                while time.monotonic() < end:
                    series.append((time.monotonic(), server.resident_bytes()))
                    await asyncio.to_thread(server.metrics)
                    await asyncio.sleep(max(0.5, SECONDS / 60))

            async def mix():
                await asyncio.gather(watch(), *(worker(seed) for seed in range(24)))

            begin = time.monotonic()
            asyncio.run(mix())
            server.seconds_until_idle()
            late = [(t - begin, r / MIB) for t, r in series if t - begin >= SECONDS / 5]
            mean_t, mean_r = (sum(values) / len(late) for values in zip(*late))
            slope = (sum((t - mean_t) * (r - mean_r) for t, r in late) / sum((t - mean_t) ** 2 for t, _ in late)) * 60
            print("  resident MiB: " + " ".join(f"{r / MIB:.1f}" for _, r in series))
            self.report(f"{SECONDS:.0f} s of everything", **{k.replace(" ", "_"): v for k, v in sorted(counts.items())},
                        grows_MiB_per_minute=round(slope, 3))
            finished = server.metrics()["fathom_requests_finished_total"]
            self.assertEqual(sum(v for labels, v in finished.items() if ("finished_reason", "error") in labels), 0)
            self.assertGreaterEqual(len(counts), 14 if SECONDS >= 20 else 1)
            # A leak of 1 kB for each of thousands of requests would show; the allocator's settling takes minutes.
            self.assertLess(late[-1][1] - late[0][1], max(8, SECONDS / 60))
            if SECONDS >= 300:
                self.assertLess(slope, 1e6 / MIB)


unittest.main(verbosity=2)
