"""`fathom serve` as its clients meet it: curl, sockets and HTTP connections of ours. What it answers, what it refuses, how
it ends, and that clients who are killed leave nothing behind.

usage: serve_test.py FATHOM
"""

import concurrent.futures
import http.client
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from serve_process import (BUNDLED, CHAT, COMPLETIONS, DEADLINE_S, RESPONSES, Server, endless, events, until, user)

FATHOM = os.path.abspath(sys.argv.pop(1))
QUESTION = "What is 1234 + 5678?"
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "required": ["city", "days"], "additionalProperties": False, "properties": {
        "city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}}}}
TIME = {"type": "function", "function": {"name": "get_time", "parameters": {
    "type": "object", "required": ["zone"], "additionalProperties": False, "properties": {"zone": {"enum": ["UTC", "CET"]}}}}}


def greedy(text=QUESTION, **more):
    return {"messages": user(text), "temperature": 0, **more}


class Served(unittest.TestCase):
    """One server for all tests of a class."""
    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(FATHOM, *cls.FLAGS)
        cls.addClassCleanup(cls.server.__exit__)

    def tearDown(self):
        self.assertIsNone(self.server.process.poll(), "the server ended: " + "".join(self.server.log))
        self.server.seconds_until_idle()

    def message(self, body):
        (choice,) = self.server.ask(CHAT, **body)["choices"]
        return choice["message"]

    def streamed(self, body):
        """What a client puts together from a chat's chunks: {index: choice}, the usage, and the chunks."""
        chunks = list(self.server.stream(CHAT, **body))
        self.assertEqual(chunks.pop(), "[DONE]")
        choices, usage = {}, None
        for chunk in chunks:
            self.assertEqual(chunk["object"], "chat.completion.chunk")
            self.assertEqual(chunk["id"], chunks[0]["id"])
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                whole = choices.setdefault(choice["index"], {"content": "", "reasoning": "", "calls": {}, "logprobs": []})
                self.assertNotIn("finish_reason", whole, "a delta after the finish")
                delta = choice["delta"]
                whole["logprobs"] += (choice["logprobs"] or {}).get("content", [])
                self.assertEqual("role" in delta, not whole.get("role"), delta)
                whole.setdefault("role", delta.get("role"))
                whole["content"] += delta.get("content") or ""
                whole["reasoning"] += delta.get("reasoning") or ""
                for call in delta.get("tool_calls", []):
                    into = whole["calls"].setdefault(call["index"], {"name": "", "arguments": ""})
                    into["name"] += call["function"].get("name", "")
                    into["arguments"] += call["function"].get("arguments", "")
                    into.setdefault("id", call.get("id"))
                if choice["finish_reason"]:
                    whole["finish_reason"] = choice["finish_reason"]
        return choices, usage, chunks


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

        # The tokens themselves, and what the server makes of the conversation.
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
        # Who is stopped by its text has not been given up.
        self.server.seconds_until_idle()
        finished = self.server.metrics()["fathom_requests_finished_total"]
        self.assertEqual({dict(labels)["finished_reason"]: n for labels, n in finished.items()}["abort"], 0)

    def test_usage_and_timings(self):
        text = f"What is {time.time_ns() % 9000 + 1000} + 5678?"  # nobody's prefix yet
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
            # Greedy: the chosen one is the best.
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
        # Next to it, others keep to their own.
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

        # The call and its result go back in.
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
            if answer["finish_reason"] == "length":  # it thought, which is free, and came to no end
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
        # On a keep-alive connection a HEAD's answer has no body to trip over.
        connection = self.server.connection()
        for method in ("HEAD", "GET", "HEAD", "GET"):
            connection.request(method, "/v1/models")
            answer = connection.getresponse()
            self.assertEqual((answer.status, len(answer.read()) > 0), (200, method == "GET"))
        connection.close()


class Refusals(Served):
    FLAGS = ("--api-key", "secret", "--max-num-seqs", 1, "--max-queued-requests", 2, "--max-body-bytes", 100_000,
             "--allowed-origins", "https://page.example", "--max-model-len", 131072, "--kv-tokens", 131072)
    KEY = {"Authorization": "Bearer secret"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        plain = cls.server.request  # from here on with the key, unless a test says otherwise
        cls.server.request = lambda method, path, body=None, headers=(): plain(method, path, body, {**cls.KEY, **dict(headers)})

    def refused(self, status, method, path, body=None, headers=(), words=(), param=None):
        reply = (self.server.post(path, body, headers) if method == "POST" else
                 self.server.request(method, path, body, headers))
        self.assertEqual(reply.status, status, (path, body if body is None else str(body)[:300], reply.body))
        self.assertEqual(reply.headers["Content-Type"], "application/json")
        error = reply.error()
        self.assertEqual(error["code"], status)
        self.assertTrue(error["type"])
        if param:
            self.assertEqual(error["param"], param, error)
        for word in words:
            self.assertIn(word, error["message"])
        return reply

    def test_400_names_the_field(self):
        message = user("Hi")
        for param, body in {
                "messages": {}, "messages[0].role": {"messages": [{"role": "king", "content": "x"}]},
                "messages[0].content": {"messages": [{"role": "user", "content": 7}]},
                "messages[1].content[0].type": {"messages": message + [{"role": "user", "content": [{"type": "image_url"}]}]},
                "temperature": {"messages": message, "temperature": -1}, "top_p": {"messages": message, "top_p": 0},
                "top_k": {"messages": message, "top_k": 1.5}, "n": {"messages": message, "n": 10**6},
                "seed": {"messages": message, "seed": "x"}, "max_tokens": {"messages": message, "max_tokens": 0},
                "stop[1]": {"messages": message, "stop": ["a", 5]},
                "stop_token_ids[0]": {"messages": message, "stop_token_ids": [10**9]},
                "top_logprobs": {"messages": message, "logprobs": True, "top_logprobs": 21},
                "stream": {"messages": message, "stream": "yes"}, "stream_options": {"messages": message, "stream_options": {}},
                "tools[0].function.name": {"messages": message, "tools": [{"type": "function", "function": {}}]},
                "tool_choice": {"messages": message, "tool_choice": "required"},
                "reasoning_effort": {"messages": message, "reasoning_effort": "frantic"},
                "priority": {"messages": message, "priority": 2**40},
                "cache_salt": {"messages": message, "cache_salt": ""},
                "presence_penalty": {"messages": message, "presence_penalty": 1e308}}.items():
            self.refused(400, "POST", CHAT, body, param=param, words=(param.split("[")[0].split(".")[0],))
        self.refused(400, "POST", COMPLETIONS, {"prompt": [1, -1]}, param="prompt[1]")
        self.refused(400, "POST", COMPLETIONS, {}, param="prompt")
        self.refused(400, "POST", RESPONSES, {"input": 5}, param="input")
        self.refused(400, "POST", RESPONSES, {"input": "x", "previous_response_id": "resp_1"}, param="previous_response_id")
        self.refused(400, "POST", "/tokenize", {"prompt": 5}, param="prompt")
        self.refused(400, "POST", "/detokenize", {"tokens": [2**31]}, param="tokens[0]")
        schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "sandwich"}}}
        self.refused(400, "POST", CHAT, {"messages": message, "response_format": schema}, words=("#/type",),
                     param="response_format")

    def test_400_of_what_is_no_json(self):
        for body in (b"", b"{", b"[]", b"null", b"{}x", b'{"messages": NaN}', b'{"messages": [}', b"\xff\xfe", b'{"a": 1e999}',
                     b"[" * 50_000, b'{"a":' * 20_000, b'{"messages": "\xed\xa0\x80"}', b'{"messages": "\\ud800"}', b"\0"):
            self.refused(400, "POST", CHAT, body)

    def test_400_where_prompt_and_answer_do_not_fit(self):
        reply = self.refused(400, "POST", CHAT, {"messages": user("Hi"), "max_tokens": 131072}, param="max_tokens")
        self.assertEqual(reply.error()["type"], "exceed_context_size_error")
        self.refused(400, "POST", CHAT, {"messages": user("Hi"), "max_tokens": 131073}, param="max_tokens")

    def test_401_without_the_key(self):
        for key in ("", "Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "Basic secret", "secret"):
            for method, path, body in (("POST", CHAT, greedy()), ("GET", "/metrics", None), ("GET", "/v1/models", None),
                                       ("GET", "/stats", None)):
                reply = self.refused(401, method, path, body, {"Authorization": key}, words=("Bearer",))
                self.assertEqual(reply.headers["WWW-Authenticate"], "Bearer")
        for path in ("/health", "/ready", "/ping", "/", "/openapi.json"):
            self.assertEqual(self.server.get(path, Authorization="").status, 200)

    def test_404_405_415(self):
        self.refused(404, "GET", "/v1/nothing", words=("/v1/nothing",))
        self.refused(404, "GET", "/v1/models/other", words=("other", "tiny"))
        self.refused(404, "POST", CHAT, greedy(model="other"), param="model", words=("other", "tiny"))
        self.assertEqual(self.refused(405, "GET", CHAT, words=("GET",)).headers["Allow"], "POST, OPTIONS")
        self.assertIn("GET", self.refused(405, "POST", "/v1/models", {}).headers["Allow"])
        self.refused(415, "POST", CHAT, greedy(), {"Content-Type": "text/plain"}, words=("text/plain",))

    def test_413_and_431(self):
        self.refused(413, "POST", CHAT, greedy("x" * 100_001), words=("100000",))
        self.refused(431, "GET", "/health", headers={"X-Long": "x" * 20_000})
        # Announced is enough; and so is a body in chunks that does not end.
        with self.server.socket(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n".encode()) as one:
            self.assertIn(b" 413 ", one.recv(100))
        with self.server.socket(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()) as one:
            one.sendall(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
            try:
                while True:
                    one.sendall(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
            except OSError:  # the server has had enough
                pass

    def test_cors(self):
        reply = self.server.request("OPTIONS", CHAT, headers={"Origin": "https://page.example", "Authorization": ""})
        self.assertEqual((reply.status, reply.headers["Access-Control-Allow-Origin"]), (204, "https://page.example"))
        self.assertIn("POST", reply.headers["Access-Control-Allow-Methods"])
        self.assertEqual(self.server.get("/health", Origin="https://page.example").headers["Access-Control-Allow-Origin"],
                         "https://page.example")
        self.assertIsNone(self.server.get("/health", Origin="https://other.example").headers["Access-Control-Allow-Origin"])

    def test_429_when_the_queue_is_full(self):
        held = []
        for running, waiting in ((1, 0), (1, 1), (1, 2)):
            connection = self.server.connection()
            connection.request("POST", CHAT, json.dumps(endless(stream=True)), {"Content-Type": "application/json", **self.KEY})
            held.append((connection, connection.getresponse()))
            until(lambda: (self.server.gauges()["requests_running"], self.server.gauges()["requests_waiting"]) ==
                  (running, waiting), f"{running} running, {waiting} waiting")
        self.assertEqual([answer.status for _, answer in held], [200] * 3)
        reply = self.refused(429, "POST", CHAT, endless())
        self.assertGreaterEqual(int(reply.headers["Retry-After"]), 1)
        self.refused(429, "POST", COMPLETIONS, {"prompt": "x", "stream": True})  # no stream was begun
        held[1][0].close()  # a place in the queue is free, but not two
        held[1][1].close()
        until(lambda: self.server.gauges()["requests_waiting"] == 1, "a client in the queue has gone")
        self.refused(429, "POST", CHAT, endless(n=2))
        until(lambda: self.server.gauges()["requests_waiting"] == 1, "a refused call leaves nothing in the queue")
        for connection, answer in held:
            connection.close()
            answer.close()
        self.server.seconds_until_idle()
        self.assertEqual(self.server.post(CHAT, greedy(max_tokens=2)).status, 200)


class Start(unittest.TestCase):
    def test_503_while_the_model_is_loaded(self):
        with Server(FATHOM, wait=False) as server:
            early = []
            while True:
                reply = server.post(CHAT, greedy())
                if reply.status == 200:
                    break
                early.append(reply)
            self.assertIn("6912", reply.json()["choices"][0]["message"]["content"])
            for reply in early:  # none, where loading was quicker than this
                self.assertEqual((reply.status, reply.error()["type"]), (503, "unavailable_error"))
                self.assertTrue(reply.headers["Retry-After"])
            print(f"{len(early)} answers while the model was loaded")

    def test_a_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            result = subprocess.run([FATHOM, "serve", "--model", BUNDLED, "--port", str(port)], capture_output=True, text=True,
                                    timeout=DEADLINE_S)
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertEqual(result.stdout, "")
        for word in (f"127.0.0.1:{port}", "in use", "choose another port"):
            self.assertIn(word, result.stderr)

    def test_what_cannot_be_served(self):
        for flags, word in ((("--model", "/nowhere"), "config.json"), (("--host", "192.0.2.1"), "192.0.2.1"),
                            (("--max-num-seqs", "0"), "--max-num-seqs"), (("--kv-tokens", "8"), "")):
            result = subprocess.run([FATHOM, "serve", "--model", BUNDLED, "--port", "0", *flags] if "--model" not in flags
                                    else [FATHOM, "serve", "--port", "0", *flags],
                                    capture_output=True, text=True, timeout=DEADLINE_S)
            self.assertEqual(result.returncode, 5, (flags, result.stderr))
            self.assertIn(word, result.stderr)


class End(unittest.TestCase):
    def begun(self, server, **body):
        """A stream of which the first event has come."""
        connection = server.connection()
        connection.request("POST", CHAT, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        first = answer.readline()
        self.assertTrue(first.startswith(b"data: "), first)
        return connection, answer

    def test_sigterm_drains(self):
        with Server(FATHOM, "--max-num-seqs", 2, "--drain-timeout", DEADLINE_S) as server:
            bodies = [{**endless(), "max_tokens": 1500 + i} for i in range(4)]  # two running, two in the queue
            streams = [self.begun(server, **body) for body in bodies]
            whole = concurrent.futures.ThreadPoolExecutor(1).submit(server.post, CHAT, {**endless(), "max_tokens": 600})
            data = json.dumps(greedy()).encode()
            late = server.socket(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
                                 f"{len(data)}\r\n\r\n".encode() + data[:9])
            idle = server.connection()
            idle.request("GET", "/health")
            idle.getresponse().read()
            until(lambda: sum(server.gauges()[f"requests_{kind}"] for kind in ("running", "waiting")) == 5, "all are there")

            server.signal()
            server.said("draining: 5 requests")
            late.sendall(data[9:])
            with late, late.makefile("rb") as reader:
                answer = reader.read()
            self.assertTrue(answer.startswith(b"HTTP/1.1 503 "), answer)
            self.assertIn(b"\r\nRetry-After: ", answer)
            self.assertIn(b"\r\nConnection: close\r\n", answer)
            with self.assertRaises(OSError):
                server.socket().close()
            self.assertEqual(idle.sock.recv(1), b"")  # told at once that this is all
            idle.close()

            for body, (connection, answer) in zip(bodies, streams):
                seen = list(events(answer))
                self.assertEqual(seen[-1], "[DONE]")
                last = next(c for c in reversed(seen[:-1]) if c["choices"])
                self.assertEqual(last["choices"][0]["finish_reason"], "length")
                self.assertEqual(last["timings"]["predicted_n"], body["max_tokens"])
                answer.close()
                connection.close()
            self.assertEqual(whole.result(DEADLINE_S).json()["usage"]["completion_tokens"], 600)
            self.assertEqual(server.wait(), 0)
            server.said("all answered")

    def cut_short(self, server, end):
        """`end` is called while a stream and a whole answer are written; neither client is left hanging."""
        connection, answer = self.begun(server, **endless())
        whole = concurrent.futures.ThreadPoolExecutor(1).submit(server.post, CHAT, endless())
        until(lambda: server.gauges()["requests_running"] == 2, "both are running")
        end()
        with self.assertRaises((OSError, http.client.IncompleteRead)):
            while answer.read(4096):
                pass
        answer.close()
        connection.close()
        self.assertIsNotNone(whole.exception(DEADLINE_S))

    FLAGS = ("--max-model-len", 131072, "--kv-tokens", 262144)

    def test_the_time_to_drain_is_limited(self):
        with Server(FATHOM, *self.FLAGS, "--drain-timeout", 1) as server:
            self.cut_short(server, server.signal)
            self.assertEqual(server.wait(), 0)
            server.said("some requests were cut short")

    def test_a_second_sigterm_ends_at_once(self):
        with Server(FATHOM, *self.FLAGS, "--drain-timeout", 86400) as server:
            def twice():
                server.signal()
                server.said("draining: 2 requests")
                server.signal(signal.SIGINT)
            self.cut_short(server, twice)
            self.assertEqual(server.wait(), 0)
            server.said("some requests were cut short")

    def test_a_killed_server_leaves_nobody_hanging(self):
        with Server(FATHOM, *self.FLAGS) as server:
            self.cut_short(server, lambda: server.signal(signal.SIGKILL))
            self.assertEqual(server.wait(), -signal.SIGKILL)

    def test_an_idle_server_ends(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with Server(FATHOM) as server, server.socket(), server.socket(b"GET /hea"):
                server.signal(number)
                self.assertEqual(server.wait(), 0)
                self.assertEqual(server.log[-1], "all answered\n")


# A client in a process of its own: connects, sends what it reads, says so, and goes on as told.
CLIENT = """
import socket, sys, time
port, then, data = int(sys.argv[1]), sys.argv[2], sys.stdin.buffer.read()
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
s.connect(("127.0.0.1", port))
s.sendall(data)
if then == "half-close": s.shutdown(socket.SHUT_WR)
print("sent", flush=True)
if then == "read slowly":
    while s.recv(64): time.sleep(0.02)
time.sleep(1000)
"""


class Gone(unittest.TestCase):
    """Clients that are killed, in every state in which a client can be."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(FATHOM, "--max-num-seqs", 2, "--max-model-len", 131072, "--kv-tokens", 262144)
        cls.addClassCleanup(cls.server.__exit__)
        cls.longest = 0

    @classmethod
    def tearDownClass(cls):
        print(f"idle again within {cls.longest:.3f} s")

    def setUp(self):
        self.server.seconds_until_idle()

    def head(self, body, **headers):
        data = json.dumps(body).encode() if not isinstance(body, bytes) else body
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        return (f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{more}"
                f"Content-Length: {len(data)}\r\n\r\n").encode() + data

    def client(self, data, then="wait"):
        process = subprocess.Popen([sys.executable, "-c", CLIENT, str(self.server.port), then], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE)
        process.stdin.write(data)
        process.stdin.close()
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b"sent\n")
        return process

    def curl(self, body):
        process = subprocess.Popen(["curl", "--silent", "--no-buffer", "--json", json.dumps(body), self.server.url + CHAT],
                                   stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def reached(self, what, **gauges):
        def now():
            seen = self.server.gauges()
            return all(seen[name] == value for name, value in gauges.items())
        until(now, what)

    def kill(self, *processes):
        for process in processes:
            process.kill()
            process.wait()

    def idle(self):
        """After clients were killed, or by itself."""
        type(self).longest = max(self.longest, self.server.seconds_until_idle())
        until(lambda: self.server.metric("fathom_http_connections") == 1, "only who asks is connected")
        # And the server is as good as new.
        self.assertEqual(self.server.ask(CHAT, **greedy(max_tokens=2))["usage"]["completion_tokens"], 2)

    def test_in_decode(self):
        for body in (endless(stream=True), endless(), endless(n=2), endless(stream=True, n=2)):
            client = self.curl(body)
            before = self.server.metric("fathom_generated_tokens_total")
            until(lambda: self.server.metric("fathom_generated_tokens_total") > before, "tokens are written")
            if body.get("stream"):
                self.assertTrue(client.stdout.readline().startswith(b"data: "))
            self.kill(client)
            self.idle()

    def test_in_prefill(self):
        before = self.server.metric("fathom_generated_tokens_total")
        number = time.time_ns()  # no cached prefix
        for stream in (True, False):
            prompt = f"{number}{stream} " + "The garden is green. " * 12_000
            client = self.client(self.head({"messages": user(prompt), "max_tokens": 5, "stream": stream}))
            until(lambda: self.server.gauges()["kv_pages_in_use"] > 20, "the prompt is being read")
            self.kill(client)
            self.server.seconds_until_idle()
        self.assertEqual(self.server.metric("fathom_generated_tokens_total"), before, "the prompt was too short for this test")
        self.idle()

    def test_in_the_queue(self):
        running = [self.curl(endless()) for _ in range(2)]
        self.reached("two run", requests_running=2)
        queued = [self.curl(endless(stream=stream)) for stream in (True, False, True)]
        self.reached("three wait", requests_running=2, requests_waiting=3)
        for left in (2, 1, 0):
            self.kill(queued.pop())
            self.reached(f"{left} wait", requests_running=2, requests_waiting=left)
        self.kill(*running)
        self.idle()

    def test_reading_slowly(self):
        client = self.client(self.head(endless(stream=True, logprobs=True, top_logprobs=20)), "read slowly")
        before = self.server.metric("fathom_generated_tokens_total")
        until(lambda: self.server.metric("fathom_generated_tokens_total") > before + 100, "more is written than is read")
        self.kill(client)
        self.idle()

    def test_not_reading(self):
        # Not killed: dropped, as soon as it has left more unread than is kept for it.
        clients = [self.client(self.head(endless(stream=True, logprobs=True, top_logprobs=20))) for _ in range(2)]
        self.server.seconds_until_idle()
        self.kill(*clients)

    def test_half_closed(self):
        # Nobody who closes is waited for: what such a client would have read is not written.
        clients = [self.client(self.head(endless(stream=stream)), "half-close") for stream in (True, False)]
        self.idle()
        self.kill(*clients)

    def test_who_sent_the_next_request_too(self):
        following = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        for stream in (True, False):
            for count in (1, 1000):
                client = self.client(self.head(endless(stream=stream)) + following * count)
                self.reached("it runs", requests_running=1)
                self.kill(client)
                self.idle()

    def test_before_the_request_is_whole(self):
        whole = self.head(endless(stream=True))
        for data in (b"", b"POS", whole[:40], whole[:-1], self.head(b"x" * 1000)[:-500]):
            client = self.client(data)
            self.kill(client)
        self.idle()

    def test_many_at_once(self):
        clients = [self.curl(endless(stream=i % 2 == 0, n=1 + i % 3)) for i in range(12)]
        until(lambda: self.server.gauges()["requests_waiting"] >= 20, "most wait")
        self.kill(*clients)
        self.idle()
        aborted = self.server.metrics()["fathom_requests_finished_total"]
        self.assertGreaterEqual(sum(v for labels, v in aborted.items() if ("finished_reason", "abort") in labels), 22)


class Metrics(Served):
    ALIASES = {"requests_running": "num_requests_running", "requests_waiting": "num_requests_waiting",
               "kv_usage_ratio": "kv_cache_usage_perc", "prompt_tokens_total": "prompt_tokens_total",
               "generated_tokens_total": "generation_tokens_total", "requests_finished_total": "request_success_total",
               "preemptions_total": "num_preemptions_total", "prefix_queried_tokens_total": "prefix_cache_queries_total",
               "prefix_hit_tokens_total": "prefix_cache_hits_total",
               "prompt_tokens_by_source_total": "prompt_tokens_by_source_total",
               "time_to_first_token_seconds": "time_to_first_token_seconds",
               "inter_token_latency_seconds": "inter_token_latency_seconds",
               "time_per_output_token_seconds": "request_time_per_output_token_seconds",
               "request_e2e_seconds": "e2e_request_latency_seconds", "request_queue_seconds": "request_queue_time_seconds",
               "request_prefill_seconds": "request_prefill_time_seconds",
               "request_decode_seconds": "request_decode_time_seconds",
               "request_inference_seconds": "request_inference_time_seconds",
               "request_prompt_tokens": "request_prompt_tokens", "request_generated_tokens": "request_generation_tokens"}
    FLAGS = ("--max-num-seqs", 4, "--kv-tokens", 4096, "--max-model-len", 2048)

    def test_identities(self):
        asked, received, prompt_tokens, lengths = 0, 0, 0, []
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            jobs = [pool.submit(self.server.ask, CHAT, **greedy(f"What is {i} + {i}?", n=1 + i % 2, max_tokens=20 + 40 * (i % 5)))
                    for i in range(40)]
            while not all(job.done() for job in jobs):  # as they are, not only at rest
                self.check(self.server.metrics())
            for i, job in enumerate(jobs):
                usage = job.result()["usage"]
                asked += 1 + i % 2
                received += usage["completion_tokens"]
                prompt_tokens += usage["prompt_tokens"] * (1 + i % 2)
                lengths.append(usage["completion_tokens"])
        with self.assertRaises(AssertionError):
            self.server.ask(CHAT, messages=[])
        self.server.seconds_until_idle()
        metrics = self.server.metrics()
        self.check(metrics)

        def one(name):
            (value,) = metrics[name].values()
            return value
        self.assertEqual(one("fathom_request_e2e_seconds_count"), asked)
        self.assertEqual(sum(metrics["fathom_requests_finished_total"].values()), asked)
        self.assertEqual(one("fathom_request_generated_tokens_sum"), received)
        self.assertEqual(one("fathom_generated_tokens_total"), received)
        self.assertEqual(one("fathom_prompt_tokens_total"), prompt_tokens)
        self.assertEqual(one("fathom_request_prompt_tokens_sum"), prompt_tokens)
        self.assertEqual(one("fathom_prefix_queried_tokens_total"), prompt_tokens)
        self.assertEqual(one("fathom_inter_token_latency_seconds_count"), received - asked)
        self.assertEqual(one("fathom_request_choices_count"), 40)
        by_status = {(dict(labels)["route"], dict(labels)["status"]): v
                     for labels, v in metrics["fathom_http_responses_total"].items()}
        self.assertEqual((by_status[CHAT, "2xx"], by_status[CHAT, "4xx"]), (40, 1))

    def check(self, metrics):
        """What holds at every moment."""
        for own, alias in self.ALIASES.items():
            names = [name for name in metrics if re.fullmatch(rf"fathom_{own}(_bucket|_sum|_count)?", name)]
            self.assertTrue(names, own)
            for name in names:
                other = f"vllm:{alias}" + name[len(f"fathom_{own}"):]
                self.assertEqual(metrics.get(other), metrics[name], other)

        def total(name):
            return sum(metrics[f"fathom_{name}"].values())
        for whole, parts in (("request_e2e_seconds", ("request_queue_seconds", "request_inference_seconds")),
                             ("request_inference_seconds", ("request_prefill_seconds", "request_decode_seconds")),
                             ("time_to_first_token_seconds", ("request_queue_seconds", "request_prefill_seconds"))):
            self.assertAlmostEqual(total(whole + "_sum"), sum(total(part + "_sum") for part in parts), places=6, msg=whole)
            for part in parts:
                self.assertEqual(total(part + "_count"), total(whole + "_count"))
        self.assertEqual(total("prompt_tokens_by_source_total"), total("prompt_tokens_total"))
        self.assertLessEqual(total("prefix_hit_tokens_total"), total("prefix_queried_tokens_total"))
        self.assertLessEqual(total("requests_running"), 4)
        self.assertLessEqual(total("kv_pages_in_use"), total("kv_pages"))
        for name, series in metrics.items():  # histograms grow with their bounds, up to their count
            if name.endswith("_bucket"):
                by_labels = {}
                for labels, value in series.items():
                    bound = float(dict(labels)["le"])
                    by_labels.setdefault(frozenset(l for l in labels if l[0] != "le"), []).append((bound, value))
                for labels, buckets in by_labels.items():
                    counts = [count for _, count in sorted(buckets)]
                    self.assertEqual(counts, sorted(counts), name)
                    self.assertEqual(counts[-1], metrics[name[:-len("_bucket")] + "_count"][labels], name)


del Served  # a base, no tests of its own
unittest.main(verbosity=2)
