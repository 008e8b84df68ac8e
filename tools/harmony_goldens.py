#!/usr/bin/env python3
"""Writes the developer messages that OpenAI's openai-harmony renders; Fathom must match them byte for byte.

    tools/harmony_goldens.py tests/goldens/harmony_tools.json

Needs: pip install openai-harmony. The package fetches o200k_base.tiktoken when first used; TIKTOKEN_ENCODINGS_BASE may
name a folder that has it.
"""
import itertools
import json
import pathlib
import random
import sys
from importlib.metadata import version

from openai_harmony import (Conversation, DeveloperContent, HarmonyEncodingName, Message, Role, ToolDescription,
                            load_harmony_encoding)


def an_object(**properties):
    return {"type": "object", "properties": properties}


BY_HAND = {
    "instructions": ("Answer in rhyme.\nAlways.", []),
    "no parameters": (None, [("get_time", "Tells the time.", None)]),
    "empty object": (None, [("f", "", {"type": "object", "properties": {}})]),
    "any": (None, [("f", "", {})]),
    "several": ("Help.", [
        ("get_location", "Gets the location of the user.", None),
        ("get_weather", "Gets the weather\nof a city.\r\n\nIn degrees.", {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
                "format": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            },
            "required": ["location"]}),
    ]),
    "scalars": (None, [("f", "d", an_object(
        i={"type": "integer", "default": 3}, n={"type": "number", "default": 0.5}, b={"type": "boolean", "default": True},
        s={"type": "string", "default": "a \"b\""}, e={"type": "string", "enum": ["x", "y"], "default": "x"},
        none={"type": "null"}, nothing={}, z={"type": "string", "default": None}, mixed={"type": "string", "enum": ["a", 1]},
        numbers={"type": "integer", "enum": [1, 2]}, empty={"type": "string", "enum": []}))]),
    "titles and examples": (None, [("f", "d", an_object(
        a={"type": "string", "title": "A", "description": "an a", "examples": ["one", "two", 3]},
        b={"type": "string", "title": "B", "examples": []}))]),
    "arrays": (None, [("f", "d", an_object(
        a={"type": "array"}, b={"type": "array", "items": {"type": "integer"}},
        c={"type": "array", "items": {"type": "array", "items": {"type": "string", "enum": ["p", "q"]}}},
        d={"type": "array", "items": an_object(x={"type": "string"})}))]),
    "unions": (None, [("f", "d", an_object(
        a={"type": ["integer", "string", "null"]}, b={"type": []}, c={"type": "string", "nullable": True},
        d={"type": ["string", "null"], "nullable": True}, e={"type": "string", "nullable": "yes"}))]),
    "nested": (None, [("f", "d", {"type": "object", "description": "outer", "required": ["in", 7], "properties": {
        "in": {"type": "object", "description": "inner", "required": ["deep"], "properties": {
            "deep": {"type": "object", "description": "deepest", "properties": {"leaf": {"type": "number"}}}}}}})]),
    "one of": (None, [("f", "d", an_object(
        a={"oneOf": [{"type": "string", "description": "s", "default": "x"}, {"type": "integer", "nullable": True}]},
        b={"description": "either", "default": "k", "oneOf": [{"type": "string", "description": "first"},
                                                            {"type": "number", "description": "second", "default": 2}]},
        c={"description": "same", "oneOf": [{"type": "string", "description": "same"},
                                            {"type": "string", "enum": ["e"], "default": "e", "description": "same"}]},
        d={"oneOf": []}, e={"oneOf": "?"},
        g={"type": "array", "items": {"oneOf": [{"type": "string", "enum": ["e"], "default": "e"}, an_object(
            h={"type": "string"})]}}))]),
    "one of at the top": (None, [("f", "d", {"oneOf": [an_object(x={"type": "string"}), {"type": "null"},
                                                       {"type": "string", "default": "v", "description": "w"}]})]),
    "order kept": (None, [("f", "d", an_object(zebra={"type": "string"}, apple={"type": "string"},
                                               mango={"default": {"b": 1, "a": [2, None]}}))]),
    "unicode": ("Grüße, 世界 🙂", [("f", "ünïcode", an_object(größe={"type": "string", "description": "→ 世界"}))]),
    "no schema at all": (None, [("f", "d", an_object(a=True, b=[1], c="string", d=None))]),
}


def random_schema(rng, depth):
    """Random JSON Schema in the places that this format reads, sensible or not."""
    schema = {}
    kinds = ["string", "integer", "number", "boolean", "null", "array", "object", ["string", "null"], ["integer", "array"]]
    if rng.random() < 0.9:
        schema["type"] = rng.choice(kinds if depth else kinds[:5])
    for key, value in [("description", "it is " + rng.choice("abc")), ("title", "T" + rng.choice("abc")),
                       ("default", rng.choice(["p", "q", 1, 2.5, False, None, [1], {"k": "v"}])),
                       ("nullable", rng.random() < 0.5), ("enum", rng.choice([["p", "q"], [], [1, "p"]])),
                       ("examples", rng.choice([["one"], [], [1, "two"]]))]:
        if rng.random() < 0.25:
            schema[key] = value
    if depth and rng.random() < 0.2:
        schema["oneOf"] = [random_schema(rng, depth - 1) for _ in range(rng.randrange(4))]
    if depth and schema.get("type") == "array" and rng.random() < 0.8:
        schema["items"] = random_schema(rng, depth - 1)
    if depth and schema.get("type") == "object":
        names = rng.sample(["delta", "alpha", "echo", "bravo", "charlie"], rng.randrange(5))
        schema["properties"] = {name: random_schema(rng, depth - 1) for name in names}
        schema["required"] = rng.sample(names, rng.randrange(len(names) + 1))
    return schema


def text_of(encoding, instructions, functions):
    content = DeveloperContent.new()
    if instructions is not None:
        content = content.with_instructions(instructions)
    if functions:
        content = content.with_function_tools([ToolDescription.new(*function) for function in functions])
    message = Message.from_role_and_content(Role.DEVELOPER, content)
    text = encoding.decode(encoding.render_conversation(Conversation.from_messages([message])))
    return text.removeprefix("<|start|>developer<|message|>").removesuffix("<|end|>")


def main():
    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    rng = random.Random(1)
    cases = dict(BY_HAND)
    for i, depth in itertools.product(range(40), (1, 2, 3)):
        cases[f"random {i} of depth {depth}"] = (None, [("f", "d", random_schema(rng, depth))])
    found = [{"name": name, "instructions": instructions or "", "functions": [
        {"name": n, "description": d, **({} if p is None else {"parameters": p})} for n, d, p in functions],
        "text": text_of(encoding, instructions, functions)} for name, (instructions, functions) in cases.items()]
    document = {"openai-harmony": version("openai-harmony"), "cases": found}
    pathlib.Path(sys.argv[1]).write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
