#!/usr/bin/env python3
"""Writes models/tiny/tokenizer.json: o200k_harmony's kind of tokenizer, with a small vocabulary of our own.

    tools/train_tokenizer.py [--fathom build/release/fathom]

The vocabulary is the control tokens, the 256 bytes, and the pieces of text (by o200k's regular expression) that the
bundled model's tasks use most. There are no merges: a piece is one token when the vocabulary has it whole
("ignore_merges"), and bytes otherwise. So a word that the model knows is one token, one that it does not know comes
letter by letter, as the tasks about letters need it, and every digit is a token. Deterministic.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent

# The rule's lowest ids; the first three are those of the tiny config in gpt-oss's tests.
SPECIALS = ["<|startoftext|>", "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>",
            "<|message|>", "<|call|>"]
# Words of the format, whatever their rank.
HARMONY = ["system", "developer", "user", "assistant", "tool", "functions", "analysis", "commentary", "final"]
VOCAB = 1024   # at most, and a multiple of 8 for efficient matrix products
CASES = 30000  # of each task
LEAST = 80     # minimum count of a word

PATTERN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
           r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
           r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_alphabet():
    """GPT-2's spelling of each byte: printable ones themselves, the others U+0100 and up in order."""
    spelling, others = {}, 0
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte:
            spelling[byte] = chr(byte)
        else:
            spelling[byte] = chr(256 + others)
            others += 1
    return spelling


def tokenizer_json(vocab):
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    added = [{"id": id, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for id, text in enumerate(SPECIALS)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]}, "post_processor": None,
            "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                      "vocab": vocab, "merges": []}}


def pieces(fathom, grammar):
    """How often each piece of byte-spelt text occurs in the tasks."""
    from tokenizers import Tokenizer
    bytes_alone = {text: id for id, text in enumerate(SPECIALS + list(byte_alphabet().values()))}
    cutter = Tokenizer.from_str(json.dumps(tokenizer_json(bytes_alone))).pre_tokenizer
    lines = subprocess.run([fathom, "model", "tasks", "--task", "all", "--count", str(CASES), "--grammar", grammar],
                           check=True, capture_output=True, text=True).stdout.splitlines()
    count = collections.Counter()

    def add(text, times=1):
        for piece, _ in cutter.pre_tokenize_str(text):
            count[piece] += times

    for line in lines:
        case = json.loads(line)
        add(case["prompt"])
        add(case["thought"])
        if case["task"] != "reversing":  # reversed words are no words
            add(case["answer"])
    prompt = tomllib.loads(pathlib.Path(grammar).read_text(encoding="utf-8"))["system_prompt"]
    add(f"{prompt}\nCurrent date: ", CASES)
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fathom", default=str(ROOT / "build/release/fathom"))
    parser.add_argument("--grammar", default=str(ROOT / "models/tiny/tasks.toml"))
    parser.add_argument("--out", default=str(ROOT / "models/tiny/tokenizer.json"))
    args = parser.parse_args()

    tokens = SPECIALS + list(byte_alphabet().values()) + HARMONY
    known = set(tokens)
    count = pieces(args.fathom, args.grammar)
    space = byte_alphabet()[ord(" ")]
    # The first word of a list has no space before it and the others have one: keep both spellings, so that both are
    # learnt.
    words = collections.Counter()
    for piece, times in count.items():
        words[piece.removeprefix(space)] += times

    def usable(piece):
        word = piece.removeprefix(space)
        return (piece not in known and words[word] >= LEAST and not any(c.isdigit() for c in word)
                and (word[:1].isalpha() or not any(c.isalpha() for c in word)))

    ranked = sorted(filter(usable, count), key=lambda piece: (-words[piece.removeprefix(space)], piece))
    tokens = (tokens + ranked)[:min(VOCAB, (len(tokens) + len(ranked)) // 8 * 8)]
    text = json.dumps(tokenizer_json({text: id for id, text in enumerate(tokens)}), ensure_ascii=False, indent=1)
    part = pathlib.Path(args.out + ".part")
    part.write_text(text + "\n", encoding="utf-8")
    os.replace(part, args.out)
    print(f"{args.out}: {len(tokens)} tokens, the last of them {tokens[-1]}, {words[tokens[-1].removeprefix(space)]} times")


if __name__ == "__main__":
    main()
