"""Starts `fathom serve` as a process and talks to it, for all tests of the server."""

import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time
import unittest

BUNDLED = pathlib.Path(__file__).resolve().parent.parent / "models" / "tiny"
DEADLINE_S = 120  # for anything that ends by itself: a sanitizer build beside other tests is slow

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"


def until(condition, what, seconds=DEADLINE_S):
    """The condition's value once it is truthy; after the deadline, a failure that names the condition."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


def user(text):
    return [{"role": "user", "content": text}]


QUESTION = "What is 1234 + 5678?"


def greedy(text=QUESTION, **more):
    return {"messages": user(text), "temperature": 0, **more}


def endless(**more):
    """A chat that does not end: 100,000 tokens take longer than any test."""
    return {"messages": user("Go on."), "ignore_eos": True, "max_tokens": 100_000, "temperature": 0, **more}


def events(lines):
    """The data of server-sent events in order: parsed JSON, and "[DONE]" as text. Raises if the framing is not what
    clients expect: at most one `event:` line, one `data:` line, an empty line."""
    name = data = None
    for line in lines:
        text = line.decode("utf-8")  # an event never splits a character
        if text == "\n":
            if data is not None:
                yield data if data == "[DONE]" else json.loads(data)
            if name is not None and data is not None and json.loads(data)["type"] != name:
                raise AssertionError(f"event {name} has data of another type: {data}")
            name = data = None
        elif text.startswith("data: ") and data is None:
            data = text[len("data: "):-1]
        elif text.startswith("event: ") and name is None:
            name = text[len("event: "):-1]
        elif not text.startswith(":"):
            raise AssertionError(f"no line of an event stream: {text!r}")
    if data is not None:
        raise AssertionError(f"the stream ends within an event: {data!r}")


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def error(self):
        return self.json()["error"]


class Server:
    """Listens on a free port, or on `port`. The end of a `with` kills it if it still runs."""

    def __init__(self, fathom, *flags, model=BUNDLED, wait=True, environment=None, listening="127.0.0.1",
                 launcher=(), verb=None, port=0):
        command = [*launcher, fathom, *(verb or ("serve", "--model", model)), "--port", port, *flags]
        self.process = subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **(environment or {})})
        self.log = []
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        first = self.process.stderr.readline()
        self.log.append(first)
        said = re.match(rf"Listening on http://{re.escape(listening)}:(\d+);", first)
        if not said:
            self.process.kill()
            raise AssertionError(f"the server did not start: {first}{self.process.stderr.read()}")
        self.reader.start()
        self.port = int(said.group(1))
        self.url = f"http://127.0.0.1:{self.port}"
        if wait:
            until(lambda: self.get("/ready").status == 200, "the server is ready")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.reader.join(10)
        self.process.stderr.close()

    # Requests.

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)

    def socket(self, sent=b"", received=None):
        """`received`: bytes that the kernel keeps of what the server sends and nobody reads."""
        found = socket.socket()
        if received:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received)
        found.settimeout(DEADLINE_S)
        found.connect(("127.0.0.1", self.port))
        found.sendall(sent)
        return found

    def request(self, method, path, body=None, headers=()):
        connection = self.connection()
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.request("GET", path, headers=headers)

    def post(self, path, body, headers=()):
        data = body if isinstance(body, (bytes, str)) else json.dumps(body)
        return self.request("POST", path, data, {"Content-Type": "application/json", **dict(headers)})

    def ask(self, path, **body):
        """The JSON of a reply with status 200; fails on any other."""
        reply = self.post(path, body)
        if reply.status != 200:
            raise AssertionError(f"{path} of {body}: {reply.status} {reply.body}")
        return reply.json()

    def stream(self, path, **body):
        """The events of a streamed answer."""
        connection = self.connection()
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            kind = answer.headers["Content-Type"]
            if answer.status != 200 or kind != "text/event-stream; charset=utf-8":
                raise AssertionError(f"{path} of {body}: {answer.status} {kind} {answer.read()}")
            yield from events(answer)
        finally:
            connection.close()

    # State of the server.

    def metrics(self):
        """{name: {frozenset of labels: value}}, of every line."""
        reply = self.get("/metrics")
        if reply.status != 200:
            raise AssertionError(f"/metrics: {reply.status} {reply.body}")
        found = {}
        for line in reply.body.decode().splitlines():
            if line.startswith("#"):
                continue
            name, labels, value = re.fullmatch(r"([\w:]+)(?:\{(.*)\})? (\S+)", line).groups()
            labels = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")
            found.setdefault(name, {})[frozenset(labels)] = float(value)
        return found

    def metric(self, name):
        (value,) = self.metrics()[name].values()
        return value

    def gauges(self):
        metrics = self.metrics()
        return {name: sum(metrics[f"fathom_{name}"].values())
                for name in ("requests_running", "requests_waiting", "waiting_tokens", "kv_pages_in_use")}

    def seconds_until_idle(self):
        begin = time.monotonic()
        until(lambda: not any(self.gauges().values()), "nothing runs, waits or holds a page")
        return time.monotonic() - begin

    def resident_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024

    def said(self, text):
        return until(lambda: any(text in line for line in self.log), f"the server says {text!r}")

    # End of the server.

    def signal(self, number=signal.SIGTERM):
        os.kill(self.process.pid, number)

    def wait(self, seconds=DEADLINE_S):
        return self.process.wait(seconds)


class Served(unittest.TestCase):
    """One server for all tests of a class."""
    FATHOM = ""  # set by each file of tests, from its command line
    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.FATHOM, *cls.FLAGS)
        cls.addClassCleanup(cls.server.__exit__)

    def tearDown(self):
        self.assertIsNone(self.server.process.poll(), "the server ended: " + "".join(self.server.log))
        self.server.seconds_until_idle()

    def message(self, body):
        (choice,) = self.server.ask(CHAT, **body)["choices"]
        return choice["message"]

    def streamed(self, body):
        """Assembles a chat's chunks as a client does: {index: choice}, the usage, and the chunks."""
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
