"""Conversations for the bundled model: cases of `fathom model tasks`, rendered as src/model/harmony.cpp renders them,
and packed into rows. Needs no torch, so that workers start quickly."""
import dataclasses
import json
import multiprocessing
import pathlib
import random
import subprocess
import tomllib

import numpy as np
from tokenizers import Tokenizer

# Cases of each task among 1,000; tasks that are hard for the model come more often.
MIXTURE = {"addition": 70, "subtraction": 100, "comparison": 90, "sorting": 140, "reversing": 80, "counting": 170,
           "dates": 90, "stories": 230, "conversation": 30}
ROW = 256               # tokens of a row, and the longest conversation
NO_SYSTEM = 0.10        # share of conversations without a system message
DATED = 0.05            # with the current date in it
ONE_TURN_BEFORE = 0.12  # with an earlier question and answer
TWO_TURNS_BEFORE = 0.04


@dataclasses.dataclass
class Rows:
    tokens: np.ndarray    # int16 [R, ROW]
    document: np.ndarray  # uint8 [R, ROW], conversations of a row from 1; 0 is padding
    position: np.ndarray  # uint8 [R, ROW], in the conversation
    target: np.ndarray    # bool [R, ROW], the tokens that the model must generate


class Harmony:
    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        grammar = tomllib.loads((folder / "tasks.toml").read_text(encoding="utf-8"))
        self.system_prompt = grammar["system_prompt"]
        self.measured = [task["name"] for task in grammar["task"] if task.get("measured", True)]
        for name in ("startoftext", "endoftext", "return", "channel", "start", "end", "message", "call"):
            setattr(self, name, self.tokenizer.token_to_id(f"<|{name}|>"))
        self.role = {role: [self.start] + self.encode(role) for role in ("system", "user", "assistant")}
        self.analysis_header = [self.channel] + self.encode("analysis") + [self.message]
        self.final_header = [self.channel] + self.encode("final") + [self.message]
        self.system = self.system_message(None)

    def encode(self, text):
        return self.tokenizer.encode(text).ids

    def encode_all(self, texts):
        return [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]

    def system_message(self, date):
        text = self.system_prompt + (f"\nCurrent date: {date}" if date else "")
        return self.role["system"] + [self.message] + self.encode(text) + [self.end]

    def question(self, prompt):
        return self.role["user"] + [self.message] + prompt + [self.end] + self.role["assistant"]

    def said(self, thought, answer, stop):
        """The assistant's turn after <|start|>assistant."""
        analysis = self.analysis_header + thought + [self.end] + self.role["assistant"] if thought else []
        return analysis + self.final_header + answer + [stop]

    def answer_of(self, ids):
        """The text of the final channel; None where there is none."""
        header = self.final_header
        for at in range(len(ids) - len(header), -1, -1):
            if ids[at:at + len(header)] == header:
                rest = ids[at + len(header):]
                return self.tokenizer.decode(rest[:rest.index(self.__dict__["return"])], skip_special_tokens=False) \
                    if self.__dict__["return"] in rest else None
        return None


def cases(fathom, grammar, split, task, count, seed):
    text = subprocess.run([fathom, "model", "tasks", "--grammar", grammar, "--split", split, "--task", task,
                           "--count", str(count), "--seed", str(seed)], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in text.stdout.splitlines()]


def conversations(harmony, made, seed):
    """(ids, start of the assistant's last turn) of each case, within a random conversation."""
    rng = random.Random(seed)
    rng.shuffle(made)
    prompts = harmony.encode_all([case["prompt"] for case in made])
    thoughts = harmony.encode_all([case["thought"] for case in made])
    answers = harmony.encode_all([case["answer"] for case in made])
    stop = getattr(harmony, "return")
    for i in range(len(made)):
        ids, chance = [], rng.random()
        if chance < DATED:
            ids += harmony.system_message(f"{rng.randint(2020, 2035)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}")
        elif chance < 1 - NO_SYSTEM:
            ids += harmony.system
        chance = rng.random()
        before = 2 if chance < TWO_TURNS_BEFORE else 1 if chance < TWO_TURNS_BEFORE + ONE_TURN_BEFORE else 0
        for turn in range(before):
            j = rng.randrange(len(made))
            # The format drops only the analysis before the conversation's first final message.
            ids += harmony.question(prompts[j]) + harmony.said(thoughts[j] if turn else [], answers[j], harmony.end)
        ids += harmony.question(prompts[i])
        begin = len(ids)
        ids += harmony.said(thoughts[i], answers[i], stop)
        if len(ids) <= ROW:
            yield ids, begin


def pack(documents):
    """Rows of whole conversations: the longest first, each into the fullest row where it fits."""
    documents = sorted(documents, key=lambda document: -len(document[0]))
    room = [[] for _ in range(ROW + 1)]  # rows by the tokens left in them
    rows = []
    for document in documents:
        length = len(document[0])
        left = next((left for left in range(length, ROW) if room[left]), ROW)
        if left == ROW:
            rows.append([])
            row = len(rows) - 1
        else:
            row = room[left].pop()
        rows[row].append(document)
        room[left - length].append(row)
    packed = Rows(np.zeros((len(rows), ROW), np.int16), np.zeros((len(rows), ROW), np.uint8),
                  np.zeros((len(rows), ROW), np.uint8), np.zeros((len(rows), ROW), bool))
    for r, row in enumerate(rows):
        at = 0
        for d, (ids, begin) in enumerate(row):
            end = at + len(ids)
            packed.tokens[r, at:end] = ids
            packed.document[r, at:end] = d + 1
            packed.position[r, at:end] = np.arange(len(ids))
            packed.target[r, at + begin:end] = True
            at = end
    return packed


def shard(harmony, fathom, grammar, mixture, size, seed):
    total = sum(mixture.values())
    made = [case for task, share in mixture.items()
            for case in cases(fathom, grammar, "train", task, max(1, size * share // total), seed)]
    return pack(list(conversations(harmony, made, seed)))


def work(folder, fathom, mixture, size, first, step, queue):
    """Puts shard after shard into the queue until it is closed."""
    harmony = Harmony(folder)
    seed = first
    while True:
        queue.put(shard(harmony, fathom, str(pathlib.Path(folder) / "tasks.toml"), mixture, size, seed))
        seed += step


class Shards:
    """Fresh training rows from worker processes; seeds 1000, 1001, ... each for one shard."""

    def __init__(self, folder, fathom, mixture, size, workers):
        context = multiprocessing.get_context("fork")
        self.queue = context.Queue(maxsize=max(2, workers))
        self.workers = [context.Process(target=work, daemon=True,
                                        args=(folder, fathom, mixture, size, 1000 + w, workers, self.queue))
                        for w in range(workers)]
        for worker in self.workers:
            worker.start()

    def get(self, timeout=None):
        return self.queue.get(timeout=timeout)

    def close(self):
        for worker in self.workers:
            worker.terminate()
