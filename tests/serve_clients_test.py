"""`fathom serve` with common clients: the `openai` package, and schemathesis, which generates requests from the
server's OpenAPI description.

usage: serve_clients_test.py FATHOM
Installs missing packages in build/, where later runs find them; exits with 77 (skipped) if PyPI is not reachable.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zlib

from serve_process import DEADLINE_S, QUESTION, Server, endless, user

PACKAGES = ("openai==3.54.0", "schemathesis==4.32.5", "jsonschema==4.26.0")
EXAMPLES = 25  # schemathesis examples for each operation and phase


def with_packages():
    """Continues under a Python that has the packages: this one, or a virtual environment."""
    try:
        import jsonschema  # noqa: F401
        import openai  # noqa: F401
        import schemathesis  # noqa: F401
        return
    except ImportError:
        pass
    if os.environ.get("FATHOM_TEST_VENV"):
        sys.exit("the packages were installed, but cannot be imported")
    root = pathlib.Path(__file__).resolve().parent.parent / "build/test_packages"
    venv = root / f"{zlib.crc32(repr((PACKAGES, sys.version)).encode()):08x}"
    if not venv.exists():
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as folder:
            new = f"{folder}/venv"
            made = subprocess.run([sys.executable, "-m", "venv", new], capture_output=True, text=True)
            if made.returncode == 0:
                made = subprocess.run([f"{new}/bin/python", "-m", "pip", "install", "--quiet", "--retries", "1", "--no-compile", *PACKAGES],
                                      capture_output=True, text=True, timeout=600)
            if made.returncode != 0:
                print(f"skipped: no packages {', '.join(PACKAGES)}, and no PyPI: {made.stderr.strip()[-300:]}")
                sys.exit(77)
            try:
                os.rename(new, venv)  # whole or not at all
            except OSError:
                if not venv.exists():  # another run was first
                    raise
    sys.exit(subprocess.run([venv / "bin/python", __file__, *sys.argv[1:]], env={**os.environ, "FATHOM_TEST_VENV": "1"}).returncode)


with_packages()
import jsonschema  # noqa: E402
import openai  # noqa: E402

FATHOM = os.path.abspath(sys.argv.pop(1))
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.", "strict": True,
    "parameters": {"type": "object", "required": ["city", "days"], "additionalProperties": False, "properties": {
        "city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}}}}
PERSON = {"type": "object", "required": ["name", "age", "pets"], "additionalProperties": False, "properties": {
    "name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "pets": {"type": "array", "maxItems": 2, "items": {"type": "object", "required": ["kind"], "additionalProperties": False,
                                                       "properties": {"kind": {"enum": ["cat", "dog"]}}}}}}


class OpenAI(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(FATHOM, "--api-key", "secret", "--max-body-bytes", 200_000)
        cls.addClassCleanup(cls.server.__exit__)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="secret", timeout=DEADLINE_S, max_retries=0)
        cls.addClassCleanup(cls.client.close)
        cls.model = cls.client.models.list().data[0].id

    def chat(self, **more):
        return self.client.chat.completions.create(**{"model": self.model, "messages": user(QUESTION), "temperature": 0, **more})

    def test_streaming(self):
        whole = self.chat()
        self.assertIn("6912", whole.choices[0].message.content)
        text, usage, finish = "", None, None
        with self.chat(stream=True, stream_options={"include_usage": True}) as stream:
            for chunk in stream:
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    finish = choice.finish_reason or finish
        self.assertEqual((text, finish), (whole.choices[0].message.content, "stop"))
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
        self.assertGreater(usage.prompt_tokens_details.cached_tokens, 0)
        # The package's stream helper accumulates and checks chunks.
        with self.client.chat.completions.stream(model=self.model, messages=user(QUESTION), temperature=0) as stream:
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.content, text)

    def test_options(self):
        several = self.chat(n=3, temperature=1.5, seed=7, max_completion_tokens=20)
        again = self.chat(n=3, temperature=1.5, seed=7, max_completion_tokens=20)
        self.assertEqual([c.message.content for c in several.choices], [c.message.content for c in again.choices])
        chosen = self.chat(logprobs=True, top_logprobs=2).choices[0]
        self.assertEqual("".join(t.token for t in chosen.logprobs.content), chosen.message.content)
        self.assertEqual({len(t.top_logprobs) for t in chosen.logprobs.content}, {2})
        text = chosen.message.content
        stopped = self.chat(stop=[text[1:3]]).choices[0]
        self.assertNotIn(text[1:3], stopped.message.content)
        made = self.client.completions.create(model=self.model, prompt=["What is", "Which"], max_tokens=5, echo=True)
        for choice, begin in zip(made.choices, ("What is", "Which")):
            self.assertTrue(choice.text.startswith(begin), choice.text)

    def test_tools_there_and_back(self):
        messages = user("What is the weather in Rome?")
        for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
            asked = self.chat(messages=messages, tools=[WEATHER], tool_choice=choice, max_tokens=300).choices[0]
            self.assertEqual(asked.finish_reason, "tool_calls")
            (call,) = asked.message.tool_calls
            jsonschema.validate(json.loads(call.function.arguments), WEATHER["function"]["parameters"])
            with self.client.chat.completions.stream(model=self.model, messages=messages, tools=[WEATHER], tool_choice=choice,
                                                     temperature=0, max_tokens=300) as stream:
                (streamed,) = stream.get_final_completion().choices[0].message.tool_calls
            self.assertEqual(streamed.function.arguments, call.function.arguments)
        told = self.chat(messages=[*messages, asked.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}],
                         tools=[WEATHER], tool_choice="auto", max_tokens=50)
        self.assertGreater(told.usage.prompt_tokens, 0)

    def test_structured_output(self):
        chosen = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
        made = self.chat(messages=user("Who are you?"), response_format=chosen, max_tokens=1000).choices[0]
        self.assertEqual(made.finish_reason, "stop")
        jsonschema.validate(json.loads(made.message.content), PERSON)
        free = self.chat(messages=user("Who are you?"), response_format={"type": "json_object"}, max_tokens=200).choices[0]
        if free.finish_reason == "stop":
            self.assertIsInstance(json.loads(free.message.content), dict)
        made = self.client.responses.create(model=self.model, input="Who are you?", temperature=0, max_output_tokens=1000, text={
            "format": {"type": "json_schema", "name": "person", "schema": PERSON}})
        jsonschema.validate(json.loads(made.output_text), PERSON)

    def test_responses(self):
        whole = self.client.responses.create(model=self.model, input=QUESTION, temperature=0)
        self.assertEqual(whole.output_text, self.chat().choices[0].message.content)
        with self.client.responses.stream(model=self.model, input=QUESTION, temperature=0) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()
        self.assertEqual((kinds[0], kinds[-1]), ("response.created", "response.completed"))
        self.assertEqual(final.output_text, whole.output_text)
        tool = {"type": "function", **WEATHER["function"]}
        asked = self.client.responses.create(model=self.model, input="What is the weather in Rome?", tools=[tool],
                                             tool_choice="required", temperature=0, max_output_tokens=300)
        (call,) = [item for item in asked.output if item.type == "function_call"]
        jsonschema.validate(json.loads(call.arguments), tool["parameters"])
        told = self.client.responses.create(
            model=self.model, tools=[tool], temperature=0, max_output_tokens=50,
            input=[*user("What is the weather in Rome?"), call.model_dump(),
                   {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}])
        self.assertGreater(told.usage.input_tokens, asked.usage.input_tokens)

    def test_errors_are_of_its_kinds(self):
        for kind, ask in ((openai.BadRequestError, lambda: self.chat(temperature=-1)),
                          (openai.NotFoundError, lambda: self.chat(model="other")),
                          (openai.NotFoundError, lambda: self.client.embeddings.create(model=self.model, input="x")),
                          (openai.AuthenticationError, lambda: self.client.with_options(api_key="wrong").models.list())):
            with self.assertRaises(kind) as raised:
                ask()
            self.assertTrue(raised.exception.body["message"])
        with self.assertRaises(openai.APIStatusError) as raised:
            self.chat(messages=user("x" * 300_000))
        self.assertEqual(raised.exception.status_code, 413)

    def test_a_stream_that_is_closed_ends_the_request(self):
        with self.chat(stream=True, max_tokens=4000, extra_body={"ignore_eos": True}) as stream:
            next(iter(stream))
        self.server.get = lambda path, **headers: self.server.request("GET", path, headers={"Authorization": "Bearer secret"})
        self.server.seconds_until_idle()


class Schemathesis(unittest.TestCase):
    def test_no_request_makes_the_server_stumble(self):
        with Server(FATHOM, "--max-model-len", 256, "--max-num-seqs", 16) as server, tempfile.TemporaryDirectory() as folder:
            # Without the check that every input matching the schema is accepted: a schema cannot express that an id
            # is in the vocabulary, that a prompt fits, or that a tool's schema is supported. One worker: hypothesis parses
            # Python, and Python 3.11 counts the depth of two such parsers as one ("recursion depth mismatch").
            seen = subprocess.run(
                [sys.executable, "-m", "schemathesis.cli", "run", server.url + "/openapi.json", "--checks", "all",
                 "--exclude-checks", "positive_data_acceptance", "--max-examples", str(EXAMPLES), "--seed", "20", "--workers",
                 "1", "--request-timeout", "60", "--generation-database", "none", "--no-color", "--continue-on-failure",
                 "--suppress-health-check", "all"], capture_output=True, text=True, cwd=folder, timeout=20 * DEADLINE_S)
            print(seen.stdout[-6000:])
            self.assertEqual(seen.returncode, 0, seen.stderr[-2000:])
            server.seconds_until_idle()
            responses = server.metrics()["fathom_http_responses_total"]
            self.assertEqual(sum(v for labels, v in responses.items() if ("status", "5xx") in labels), 0)
            self.assertGreater(sum(v for labels, v in responses.items() if ("status", "2xx") in labels), 100)
            self.assertEqual(server.ask("/v1/chat/completions", **endless(max_tokens=3))["usage"]["completion_tokens"], 3)


unittest.main(verbosity=2)
