"""Engines that tools/measure_engine measures beside each other. Each runs in a process of its own, from its start until
the last measurement, and answers two questions: how many seconds do `tokens` tokens of `batch` sequences take, prompts
included, and how many tokens a second come while all of them are being answered. A server is asked through POST
/v1/completions."""
import concurrent.futures
import importlib.metadata
import json
import os
import pathlib
import random
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

PROMPTS_A_REQUEST = 128  # Fathom's limit, for every server that reports the tokens of all of them

# Reads lines "BATCH PROMPT_LEN TOKENS" and answers each with the seconds of one generate().
TRANSFORMERS = """
import sys, time, torch, transformers
config = transformers.AutoConfig.from_pretrained(sys.argv[1])
if hasattr(config, "quantization_config"):
    del config.quantization_config
torch.manual_seed(0)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
print("ready", flush=True)
for line in sys.stdin:
    batch, length, tokens = map(int, line.split())
    ids = torch.randint(300, int(sys.argv[2]), (batch, length), device="cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    model.generate(ids, attention_mask=torch.ones_like(ids), min_new_tokens=tokens, max_new_tokens=tokens, do_sample=False)
    torch.cuda.synchronize()
    print(time.perf_counter() - start, flush=True)
"""


class Skipped(Exception):
    """This engine is not here, or cannot run here."""


class Failed(Exception):
    """It was started, and then ended, hung or gave a wrong answer."""


class Engine:
    most_sequences = 1 << 20

    def __init__(self, name, version, command, settings, **options):
        self.name, self.version, self.settings = name, version, settings
        self.log = tempfile.TemporaryFile("w+", errors="replace")
        self.began = time.monotonic()
        # In an empty folder: a folder `vllm` in the current one would hide the package.
        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen([str(part) for part in command], stderr=self.log, cwd=self.folder.name,
                                        start_new_session=True, **options)

    def last_words(self):
        self.log.seek(0)
        lines = [line.strip() for line in self.log.read().splitlines() if line.strip()]
        return lines[-1][:200] if lines else "it said nothing"

    def ended(self):
        return f"ended with status {self.process.poll()}: {self.last_words()}"

    def stop(self):
        """Ends the process and what it started: they are one session."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(15)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        self.process.wait()
        self.log.close()
        self.folder.cleanup()


class Server(Engine):
    prompts_a_request = PROMPTS_A_REQUEST

    def __init__(self, name, version, command, settings, port, ids):
        super().__init__(name, version, command, settings, stdout=subprocess.DEVNULL)
        self.port, self.ids, self.random = port, ids, random.Random(1)

    def wait_until_ready(self, deadline):
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                    if answer.status == 200:
                        break
            except OSError:
                pass
            if self.process.poll() is not None:
                raise Failed(self.ended())
            if time.monotonic() > deadline:
                raise Failed("was not ready within the budget: " + self.last_words())
            time.sleep(0.05)
        self.ready_s = time.monotonic() - self.began
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/models", timeout=30) as answer:
            self.model = json.load(answer)["data"][0]["id"]

    def prompts(self, batch, length):
        return [[self.random.randrange(300, self.ids) for _ in range(length)] for _ in range(batch)]

    def decode_rate(self, batch, length, tokens, deadline):
        """Tokens a second of all sequences, from the first token of the last of them to the last token of the first."""
        for _ in range(5):  # a busy host may read most of an answer at once
            answers = self.streamed(self.prompts(batch, length), tokens, deadline)
            begin, end = max(answer[0][0] for answer in answers), min(answer[-1][0] for answer in answers)
            seen = sum(tokens_at(answer, end) - tokens_at(answer, begin) for answer in answers) if end > begin else 0
            if seen >= batch * tokens / 4:
                return seen / (end - begin)
        raise Failed(f"was answering all of {batch} prompts during {seen:.0f} of their {batch * tokens} tokens, five times: too few to time")

    def streamed(self, prompts, tokens, deadline):
        """Of each prompt's answer [(seconds, tokens until then)], as they arrive."""
        streams = []
        try:
            with selectors.DefaultSelector() as waiting:
                for prompt in prompts:
                    streams.append(Stream(self.port, {"model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0,
                                                      "ignore_eos": True, "stream": True, "stream_options":
                                                      {"include_usage": True, "continuous_usage_stats": True}}))
                    waiting.register(streams[-1].socket, selectors.EVENT_READ, streams[-1])
                while waiting.get_map():
                    ready = waiting.select(max(0, deadline - time.monotonic()))
                    if not ready:
                        raise Failed("did not answer: timed out")
                    for key, _ in ready:
                        if not key.data.read():
                            waiting.unregister(key.fileobj)
        except OSError as error:
            time.sleep(0.2)  # a process that dies closes its sockets first
            raise Failed(self.ended() if self.process.poll() is not None else f"did not answer: {error}") from error
        finally:
            for stream in streams:
                stream.socket.close()
        for stream in streams:
            if stream.tokens != tokens:
                time.sleep(0.2)
                raise Failed(self.ended() if self.process.poll() is not None
                             else stream.refused() or f"gave {stream.tokens} of {tokens} tokens for a prompt")
        return [stream.arrived for stream in streams]

    def complete(self, body, deadline):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=max(1, deadline - time.monotonic())) as answer:
            return json.load(answer)["usage"]["completion_tokens"]

    def seconds(self, batch, length, tokens, deadline):
        prompts = self.prompts(batch, length)
        bodies = [json.dumps({"model": self.model, "prompt": prompts[i:i + self.prompts_a_request], "max_tokens": tokens,
                              "temperature": 0, "ignore_eos": True}).encode() for i in range(0, batch, self.prompts_a_request)]
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            start = time.perf_counter()
            try:
                got = sum(pool.map(lambda body: self.complete(body, deadline), bodies))
            except urllib.error.HTTPError as error:
                raise Failed(f"HTTP {error.code}: {error.read(200).decode(errors='replace')}") from error
            except (OSError, ValueError, KeyError, TypeError) as error:
                time.sleep(0.2)  # a process that dies closes its sockets first
                raise Failed(self.ended() if self.process.poll() is not None else f"did not answer: {error}") from error
            took = time.perf_counter() - start
        if got != batch * tokens:
            raise Failed(f"gave {got} tokens for {batch} prompts of {tokens}")
        return took


class Stream:
    """One answer as server-sent events. What a server says of usage counts the tokens; where it says nothing, an event is a token."""

    def __init__(self, port, asked):
        body = json.dumps(asked).encode()
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
                            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        self.head, self.rest, self.events, self.tokens, self.says_usage, self.arrived = b"", b"", 0, 0, False, []

    def read(self):
        """False when it has ended."""
        data = self.socket.recv(1 << 16)
        now = time.perf_counter()
        self.head = (self.head + data)[:300]
        whole, _, self.rest = (self.rest + data).rpartition(b"\n\n")
        usage = re.findall(rb'"completion_tokens": ?(\d+)', whole)
        self.events += whole.count(b"data: {")
        self.says_usage = self.says_usage or bool(usage)
        before, self.tokens = self.tokens, int(usage[-1]) if usage else self.tokens if self.says_usage else self.events
        if self.tokens > before:
            self.arrived.append((now, self.tokens))
        return bool(data) and b"data: [DONE]" not in whole

    def refused(self):
        return not self.head.startswith(b"HTTP/1.1 200") and f"answered {self.head.decode(errors='replace')}"


def tokens_at(arrived, when):
    """Between two arrivals the tokens of the later one are taken as evenly spread: a server may send several at a time."""
    before = arrived[0]
    for after in arrived:
        if after[0] >= when:
            break
        before = after
    if after[0] <= before[0]:
        return after[1]
    return before[1] + (after[1] - before[1]) * min(1, (when - before[0]) / (after[0] - before[0]))


class Transformers(Engine):
    few, many = 1, 25     # one batch without a queue: every step after the first is a step of decoding
    most_sequences = 8    # it shows its speed there, and holds the GPU for long

    def decode_rate(self, batch, length, tokens, deadline):
        for _ in range(5):  # another process may have slowed the shorter answers down beyond the longer ones
            few, many = (self.seconds(batch, length, each, deadline) for each in (self.few, self.many))
            if many > few:
                return batch * (self.many - self.few) / (many - few)
        raise Failed(f"{self.many} tokens took {many:.3g} s, and {self.few} took {few:.3g} s, five times")

    def wait_until_ready(self, deadline):
        if self.line(deadline) != "ready":
            raise Failed(self.ended())
        self.ready_s = time.monotonic() - self.began

    def line(self, deadline):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            read = pool.submit(self.process.stdout.readline)
            try:
                line = read.result(max(1, deadline - time.monotonic()))
            except concurrent.futures.TimeoutError:
                os.killpg(self.process.pid, signal.SIGKILL)  # ends the read, too
                raise Failed("did not answer within the budget") from None
        if not line:
            self.process.wait()
            raise Failed(self.ended())
        return line.strip()

    def seconds(self, batch, length, tokens, deadline):
        try:
            self.process.stdin.write(f"{batch} {length} {tokens}\n")
            self.process.stdin.flush()
        except OSError as error:
            raise Failed(self.ended()) from error
        return float(self.line(deadline))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise Skipped(f"not installed: this Python has no package {package}") from None


def server(name, version, command, port, ids, shown=None):
    settings = " ".join(str(part) for part in shown or command)
    return Server(name, version, command, settings, port, ids)


def fathom(program, folder, plan):
    port = free_port()
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    flags = ["serve", "--model", folder, "--device", plan.device, "--port", port, "--max-model-len", plan.context,
             "--kv-tokens", plan.kv_tokens, "--max-num-seqs", plan.sequences, "--no-prefix-cache",
             "--max-queued-requests", 4096, "--max-queued-tokens", 1 << 23, *plan.fathom_flags]
    return server("fathom", version.strip().removeprefix("fathom "), [program, *flags], port, plan.ids, ["fathom", *flags])


def vllm(folder, plan):
    """With what vLLM's own recipe for gpt-oss on Hopper sets. Its keys and values have a fixed size: vLLM derives no size
    from the free memory, which other engines are taking meanwhile."""
    if plan.device == "cpu":
        raise Skipped("not on CPUs: the wheel is for GPUs")
    version, port = version_of("vllm"), free_port()
    flags = ["serve", folder, "--host", "127.0.0.1", "--port", port, "--max-model-len", plan.context,
             "--max-num-seqs", plan.sequences, "--kv-cache-memory-bytes", plan.kv_bytes, "--gpu-memory-utilization", 0.4,
             "--async-scheduling", "--no-enable-prefix-caching", "--max-num-batched-tokens", 8192, "--stream-interval", 20,
             "--generation-config", "vllm", *plan.vllm_flags]
    made = server("vllm", version, [sys.executable, "-m", "vllm.entrypoints.cli.main", *flags], port, plan.ids, ["vllm", *flags])
    chosen = " ".join(f"{name}={value}" for name, value in sorted(os.environ.items())
                      if name.startswith("VLLM_") and name != "VLLM_HOST_IP")
    made.settings = f"{chosen} {made.settings}".strip()
    return made


def llama_cpp(folder, plan):
    program = shutil.which("llama-server")
    if not program:
        raise Skipped("not installed: no llama-server on PATH")
    files = sorted(pathlib.Path(folder).glob("*.gguf"))
    if not files:
        raise Skipped(f"{folder} has no .gguf file, which is what it reads: tools/make_gguf writes it")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    version = (said.stdout + said.stderr).strip().splitlines()[:1]
    port = free_port()
    # On CPUs it copies its weights, as our --no-mmap does.
    known = subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout
    copied = ["--load-mode", "none"] if "--load-mode" in known else ["--no-mmap"]
    where = ["--n-gpu-layers", 0, "--threads", os.cpu_count(), *copied] if plan.device == "cpu" else ["--n-gpu-layers", 999]
    flags = ["--model", files[0], "--host", "127.0.0.1", "--port", port, "--parallel", plan.sequences, "--kv-unified", "--ctx-size",
             plan.kv_tokens, *where]
    made = server("llama.cpp", version[0] if version else "unknown", [program, *flags], port, plan.ids, ["llama-server", *flags])
    made.prompts_a_request = 1  # of several it reports the tokens of the first
    return made


def transformers(folder, plan):
    if plan.device == "cpu":
        raise Skipped("measured on a GPU alone")
    version = f"{version_of('transformers')}, torch {version_of('torch')}"
    return Transformers("transformers", version, [sys.executable, "-c", TRANSFORMERS, folder, plan.ids],
                        "generate(), bf16 weights, greedy", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                        env={**os.environ, "HF_HUB_OFFLINE": "1"})


BESIDE = {"vllm": vllm, "transformers": transformers, "llama.cpp": llama_cpp}
