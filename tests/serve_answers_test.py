"""Answers of `fathom serve`: the same over every endpoint, alone or in a batch, whole or streamed.

usage: serve_answers_test.py FATHOM
"""

import concurrent.futures
import json
import math
import os
import subprocess
import sys
import threading
import time
import unittest

from serve_process import (BUNDLED, CHAT, COMPLETIONS, DEADLINE_S, QUESTION, RESPONSES, Served, endless, events, greedy, until,
                           user)

Served.FATHOM = FATHOM = os.path.abspath(sys.argv.pop(1))
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "required": ["city", "days"], "additionalProperties": False, "properties": {
        "city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}}}}
TIME = {"type": "function", "function": {"name": "get_time", "parameters": {
    "type": "object", "required": ["zone"], "additionalProperties": False, "properties": {"zone": {"enum": ["UTC", "CET"]}}}}}


class Answers(Served):
    def test_one_greedy_answer_however_it_is_asked_for(self):
        generated = subprocess.run([FATHOM, "generate", "--model", BUNDLED, "--prompt", QUESTION, "--json"],
                                   capture_output=True, text=True, timeout=DEADLINE_S, check=True)
        generated = json.loads(generated.stdout)
        answer, prompt = generated["text"], generated["prompt_ids"]
        self.assertIn("6912", answer)

        self.assertEqual(self.message(greedy())["content"], answer)
        reasoning = self.message(greedy())["reasoning"]
        self.assertEqual(reasoning, next(m["content"] for m in generated["messages"] if m["channel"] == "analysis"))
        choices, _, _ = self.streamed(greedy())
        self.assertEqual((choices[0]["content"], choices[0]["reasoning"]), (answer, reasoning))
        several = self.server.ask(CHAT, **greedy(n=4))["choices"]
        self.assertEqual([c["index"] for c in several], [0, 1, 2, 3])
        self.assertEqual({c["message"]["content"] for c in several}, {answer})
        choices, _, _ = self.streamed(greedy(n=3))
        self.assertEqual([choices[i]["content"] for i in range(3)], [answer] * 3)
        self.assertEqual(self.server.ask(RESPONSES, input=QUESTION, temperature=0)["output"][-1]["content"][0]["text"], answer)

        # The same tokens, and the prompt that the server renders from the conversation.
        self.assertEqual(self.server.ask("/tokenize", messages=user(QUESTION))["tokens"], prompt)
        raw = self.server.ask(COMPLETIONS, prompt=prompt, temperature=0, max_tokens=300, skip_special_tokens=False)
        self.assertIn(answer, raw["choices"][0]["text"])
        self.assertIn(reasoning, raw["choices"][0]["text"])

        curl = subprocess.run(["curl", "--silent", "--show-error", "--fail", "--max-time", str(DEADLINE_S), "--json",
                               json.dumps(greedy()), self.server.url + CHAT], capture_output=True, text=True)
        self.assertEqual(curl.returncode, 0, curl.stderr)
        self.assertEqual(json.loads(curl.stdout)["choices"][0]["message"]["content"], answer)

    def test_the_same_answer_in_a_batch_with_others(self):
        questions = [f"What is {17 * i} + {23 * i + 5}?" for i in range(20)] + [QUESTION]
        alone = [self.message(greedy(q)) for q in questions]
        together = threading.Barrier(len(questions))

        def ask(i):
            together.wait(DEADLINE_S)
            if i % 2:
                return self.message(greedy(questions[i]))
            choices, _, _ = self.streamed(greedy(questions[i]))
            return {"content": choices[0]["content"], "reasoning": choices[0]["reasoning"]}

        with concurrent.futures.ThreadPoolExecutor(len(questions)) as pool:
            batched = list(pool.map(ask, range(len(questions))))
        for question, one, other in zip(questions, alone, batched):
            self.assertEqual((one["content"], one["reasoning"]), (other["content"], other["reasoning"]), question)
        self.assertGreater(len({m["content"] for m in alone}), 15)

    def test_seeds_repeat_and_differ(self):
        def sampled(**more):
            body = {"messages": user("Go on."), "temperature": 3, "max_tokens": 24, "ignore_eos": True, **more}
            return [c["message"] for c in self.server.ask(CHAT, **body)["choices"]]
        self.assertEqual(sampled(seed=1), sampled(seed=1))
        self.assertNotEqual(sampled(seed=1), sampled(seed=2))
        self.assertNotEqual(sampled(), sampled())
        several = sampled(seed=5, n=3)
        self.assertEqual(several, [sampled(seed=5 + i)[0] for i in range(3)])
        choices, _, _ = self.streamed({"messages": user("Go on."), "temperature": 3, "max_tokens": 24, "ignore_eos": True,
                                       "seed": 1})
        self.assertEqual(choices[0]["content"], sampled(seed=1)[0]["content"] or "")

    def test_stop_strings(self):
        whole = self.server.ask(COMPLETIONS, prompt="What is", temperature=3, seed=4, max_tokens=60, ignore_eos=True)
        text = whole["choices"][0]["text"]
        self.assertEqual(whole["choices"][0]["finish_reason"], "length")
        for begin in range(3, len(text) - 3, 5):
            stop = text[begin:begin + 3]  # across tokens, often
            before = text[:text.index(stop)]
            for keep, expected in ((False, before), (True, before + stop)):
                body = {"prompt": "What is", "temperature": 3, "seed": 4, "max_tokens": 60, "ignore_eos": True,
                        "stop": ["never said", stop], "include_stop_str_in_output": keep}
                (choice,) = self.server.ask(COMPLETIONS, **body)["choices"]
                self.assertEqual((choice["text"], choice["finish_reason"], choice["stop_reason"]), (expected, "stop", stop))
                chunks = list(self.server.stream(COMPLETIONS, **body))[:-1]
                self.assertEqual("".join(c["text"] for chunk in chunks for c in chunk["choices"]), expected)
        # A request ended by a stop string does not count as cancelled.
        self.server.seconds_until_idle()
        finished = self.server.metrics()["fathom_requests_finished_total"]
        self.assertEqual({dict(labels)["finished_reason"]: n for labels, n in finished.items()}["abort"], 0)

    def test_usage_and_timings(self):
        text = f"What is {time.time_ns() % 9000 + 1000} + 5678?"  # not in the prefix cache yet
        prompt = self.server.ask("/tokenize", messages=user(text))["count"]
        first = self.server.ask(CHAT, **greedy(text))
        again = self.server.ask(CHAT, **greedy(text))
        for answer in (first, again):
            usage, timings = answer["usage"], answer["timings"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            self.assertEqual(usage["prompt_tokens"], prompt)
            self.assertEqual(usage["total_tokens"], prompt + usage["completion_tokens"])
            self.assertEqual((timings["cache_n"], timings["prompt_n"], timings["predicted_n"]),
                             (cached, prompt - cached, usage["completion_tokens"]))
        self.assertGreaterEqual(again["usage"]["prompt_tokens_details"]["cached_tokens"], prompt // 16 * 16 - 16)
        _, usage, chunks = self.streamed(greedy(text))
        self.assertIsNone(usage)
        _, usage, chunks = self.streamed(greedy(text, stream_options={"include_usage": True}))
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertEqual({k: v for k, v in usage.items() if isinstance(v, int)},
                         {k: v for k, v in first["usage"].items() if isinstance(v, int)})
        self.assertEqual(self.server.ask(CHAT, **greedy(text, max_tokens=7))["usage"]["completion_tokens"], 7)

    def test_logprobs(self):
        body = greedy(logprobs=True, top_logprobs=3)
        (choice,) = self.server.ask(CHAT, **body)["choices"]
        content = choice["logprobs"]["content"]
        self.assertEqual("".join(t["token"] for t in content), choice["message"]["content"])
        for token in content:
            self.assertEqual(bytes(token["bytes"]).decode(errors="replace"), token["token"])
            self.assertEqual(len(token["top_logprobs"]), 3)
            best = [t["logprob"] for t in token["top_logprobs"]]
            self.assertEqual(best, sorted(best, reverse=True))
            self.assertLessEqual(sum(map(math.exp, best)), 1 + 1e-5)
            # Greedy: the chosen token has the highest log-probability.
            self.assertEqual((token["token"], token["logprob"]), (token["top_logprobs"][0]["token"], best[0]))
        choices, _, _ = self.streamed(body)
        self.assertEqual([t["token"] for t in choices[0]["logprobs"]], [t["token"] for t in content])
        (choice,) = self.server.ask(COMPLETIONS, prompt="What is", temperature=0, logprobs=2, max_tokens=5,
                                    ignore_eos=True)["choices"]
        logprobs = choice["logprobs"]
        self.assertEqual(len(logprobs["tokens"]), len(logprobs["token_logprobs"]))
        self.assertTrue(all(value <= 0 for value in logprobs["token_logprobs"]))

    def test_logit_bias_decides(self):
        (token,) = self.server.ask("/tokenize", prompt="7")["tokens"]
        body = {"prompt": "What is", "temperature": 0, "max_tokens": 6, "logit_bias": {str(token): 100}}
        self.assertEqual(self.server.ask(COMPLETIONS, **body)["choices"][0]["text"], "777777")
        # Other requests in the batch are not affected.
        self.assertNotIn("777", self.server.ask(COMPLETIONS, **{**body, "logit_bias": {}})["choices"][0]["text"])

    def check_call(self, call, names):
        self.assertIn(call["name"], names)
        arguments = json.loads(call["arguments"])
        if call["name"] == "get_weather":
            self.assertEqual(arguments.keys(), {"city", "days"})
            self.assertIn(arguments["city"], ("Paris", "Rome"))
            self.assertTrue(1 <= arguments["days"] <= 9 and isinstance(arguments["days"], int), arguments)
        else:
            self.assertEqual(arguments.keys(), {"zone"})
            self.assertIn(arguments["zone"], ("UTC", "CET"))

    def test_tools(self):
        for choice, names in (("required", {"get_weather", "get_time"}),
                              ({"type": "function", "function": {"name": "get_weather"}}, {"get_weather"}),
                              ({"type": "function", "function": {"name": "get_time"}}, {"get_time"})):
            for temperature, seed in ((0, 0), (2, 1), (2, 2), (2, 3)):
                body = {"messages": user("What is the weather in Rome?"), "tools": [WEATHER, TIME], "tool_choice": choice,
                        "temperature": temperature, "seed": seed, "max_tokens": 300}
                (answer,) = self.server.ask(CHAT, **body)["choices"]
                self.assertEqual(answer["finish_reason"], "tool_calls", answer)
                (call,) = answer["message"]["tool_calls"]
                self.check_call(call["function"], names)
                choices, _, _ = self.streamed(body)
                self.assertEqual(choices[0]["finish_reason"], "tool_calls")
                (seen,) = choices[0]["calls"].values()
                self.assertEqual((seen["name"], seen["arguments"]), (call["function"]["name"], call["function"]["arguments"]))
                self.assertTrue(seen["id"])
        free = self.message(greedy(tools=[WEATHER], tool_choice="auto", max_tokens=300))
        for call in free.get("tool_calls", []):
            self.assertEqual(call["function"]["name"], "get_weather")
        self.assertNotIn("tool_calls", self.message(greedy(tools=[WEATHER], tool_choice="none", max_tokens=300)))

        # Send the call and its result back.
        body = {"messages": user("What is the weather in Rome?"), "tools": [WEATHER], "tool_choice": "required",
                "temperature": 0, "max_tokens": 300}
        asked = self.message(body)
        messages = [*body["messages"], asked, {"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"],
                                               "content": '{"sky": "clear", "degrees": 21}'}]
        prompt = self.server.ask("/tokenize", messages=messages, tools=[WEATHER], return_token_strs=True)
        text = "".join(prompt["token_strs"])
        self.assertIn('{"sky": "clear", "degrees": 21}', text)
        self.assertIn("functions.get_weather", text)
        told = self.server.ask(CHAT, messages=messages, tools=[WEATHER], temperature=0, max_tokens=100)
        self.assertEqual(told["usage"]["prompt_tokens"], prompt["count"])

    def test_structured_output(self):
        schema = {"type": "object", "required": ["name", "age", "tags"], "additionalProperties": False, "properties": {
            "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 3}}}

        def check(text):
            value = json.loads(text)
            self.assertEqual(value.keys(), {"name", "age", "tags"})
            self.assertTrue(isinstance(value["name"], str) and len(value["name"]) <= 12, value)
            self.assertTrue(isinstance(value["age"], int) and 0 <= value["age"] <= 150, value)
            self.assertTrue(1 <= len(value["tags"]) <= 3 and set(value["tags"]) <= {"a", "b"}, value)

        chosen = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}
        answered = 0
        for temperature, seed in ((0, 0), (1, 1), (1, 2), (1.5, 3), (1.5, 4), (2, 5), (2, 6), (5, 7)):
            body = {"messages": user("Who are you?"), "response_format": chosen, "temperature": temperature, "seed": seed,
                    "max_tokens": 1000}
            (answer,) = self.server.ask(CHAT, **body)["choices"]
            if answer["finish_reason"] == "length":  # analysis is unconstrained and may use up all tokens
                self.assertEqual(answer["message"]["content"], "")
                continue
            answered += 1
            self.assertEqual(answer["finish_reason"], "stop", answer)
            check(answer["message"]["content"])
            choices, _, _ = self.streamed(body)
            self.assertEqual(choices[0]["content"], answer["message"]["content"])
        self.assertGreaterEqual(answered, 2)
        told = self.server.ask(RESPONSES, input="Who are you?", temperature=0, max_output_tokens=1000, text={
            "format": {"type": "json_schema", "name": "person", "schema": schema}})
        check(told["output"][-1]["content"][0]["text"])

    def test_responses_stream(self):
        whole = self.server.ask(RESPONSES, input=QUESTION, temperature=0, instructions="Be brief.")
        seen = list(self.server.stream(RESPONSES, input=QUESTION, temperature=0, instructions="Be brief."))
        self.assertEqual([e["sequence_number"] for e in seen], list(range(len(seen))))
        self.assertEqual([seen[i]["type"] for i in (0, 1, -1)],
                         ["response.created", "response.in_progress", "response.completed"])
        last = seen[-1]["response"]
        self.assertEqual(last["status"], "completed")

        def said(output):
            return [(item["type"], [part["text"] for part in item["content"]]) for item in output]
        self.assertEqual(said(last["output"]), said(whole["output"]))
        by_item = {}
        for event in seen:
            if event["type"].endswith("_text.delta"):
                by_item[event["output_index"]] = by_item.get(event["output_index"], "") + event["delta"]
        self.assertEqual([[text] for _, text in sorted(by_item.items())], [texts for _, texts in said(whole["output"])])
        self.assertEqual(last["usage"]["output_tokens"], whole["usage"]["output_tokens"])
        short = list(self.server.stream(RESPONSES, input=QUESTION, temperature=0, max_output_tokens=4))[-1]
        self.assertEqual(short["type"], "response.incomplete")
        self.assertEqual(short["response"]["incomplete_details"]["reason"], "max_output_tokens")

    def test_several_prompts_and_echo(self):
        prompts = ["What is", "Reverse the", "Which is larger"]
        alone = [self.server.ask(COMPLETIONS, prompt=p, temperature=0, max_tokens=10)["choices"][0]["text"] for p in prompts]
        together = self.server.ask(COMPLETIONS, prompt=prompts, temperature=0, max_tokens=10, n=2, echo=True)["choices"]
        self.assertEqual([c["text"] for c in together], [p + t for p, t in zip(prompts, alone) for _ in range(2)])
        ids = self.server.ask("/tokenize", prompt=prompts[0])["tokens"]
        self.assertEqual(self.server.ask("/detokenize", tokens=ids)["prompt"], prompts[0])
        by_ids = self.server.ask(COMPLETIONS, prompt=[ids], temperature=0, max_tokens=10)["choices"]
        self.assertEqual(by_ids[0]["text"], alone[0])

    def test_a_connection_is_kept_and_requests_may_be_pipelined(self):
        body = json.dumps(greedy(max_tokens=3)).encode()
        head = (f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Request-Id: number-%d\r\n"
                f"Content-Length: {len(body)}\r\n\r\n")
        with self.server.socket(b"".join((head % i).encode() + body for i in range(5))) as connection:
            reader = connection.makefile("rb")
            for i in range(5):
                self.assertEqual(reader.readline(), b"HTTP/1.1 200 OK\r\n")
                headers = {}
                while (line := reader.readline()) != b"\r\n":
                    name, value = line.decode().rstrip("\r\n").split(": ", 1)
                    headers[name.lower()] = value
                self.assertEqual(headers["x-request-id"], f"number-{i}")
                self.assertTrue(json.loads(reader.read(int(headers["content-length"])))["choices"])

    def test_what_the_operator_sees(self):
        for path in ("/health", "/v1/health", "/ping", "/live", "/ready", "/version", "/stats", "/v1/models"):
            self.assertEqual(self.server.get(path).headers["Content-Type"], "application/json", path)
        models = self.server.get("/v1/models").json()["data"]
        self.assertEqual([(m["id"], m["root"], m["max_model_len"]) for m in models], [("tiny", "tiny", 4096)])
        self.assertEqual(self.server.get("/v1/models/tiny").json()["id"], "tiny")
        self.assertIn(b"<html", self.server.get("/").body)
        self.assertEqual(self.server.get("/openapi.json").json()["openapi"][:2], "3.")
        # On a keep-alive connection the reply to HEAD has no body.
        connection = self.server.connection()
        for method in ("HEAD", "GET", "HEAD", "GET"):
            connection.request(method, "/v1/models")
            answer = connection.getresponse()
            self.assertEqual((answer.status, len(answer.read()) > 0), (200, method == "GET"))
        connection.close()


class Silence(Served):
    FLAGS = ("--max-num-seqs", 1, "--max-model-len", 131072, "--kv-tokens", 131072)

    def test_a_stream_that_waits_for_its_turn_pings(self):
        whole = self.message(greedy())["content"]
        running, waiting = self.server.connection(), self.server.connection()
        for connection, body in ((running, endless()), (waiting, greedy(stream=True, sse_ping_interval=1))):
            connection.request("POST", CHAT, json.dumps(body), {"Content-Type": "application/json"})
            until(lambda: self.server.gauges()["requests_running"] == 1, "the first one runs")
        answer = waiting.getresponse()
        lines = []
        while b": ping\n" not in lines:
            lines.append(answer.readline())
            self.assertTrue(lines[-1], "the stream has ended")
        running.close()
        seen = list(events([*lines, *answer]))
        self.assertEqual(seen.pop(), "[DONE]")
        self.assertEqual("".join(c["delta"].get("content", "") for chunk in seen for c in chunk["choices"]), whole)
        waiting.close()


unittest.main(verbosity=2)
