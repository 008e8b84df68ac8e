"""Finds measured quantities that were typed by hand: a number with a unit of time, rate or gain in running text."""
import re

from docutils import nodes

UNITS = (r"(?:ns|us|µs|ms|s|seconds?|milliseconds?|microseconds?|nanoseconds?|[KMGT]?B/s|[KMGT]iB/s|[MGTP]?FLOP/s|[mgt]flops?"
         r"|tokens/s|tokens per second|GHz|MHz|W|watts?|cycles|×|x|times (?:as|faster|slower|more|less)|fold|%|percent)")
TYPED = re.compile(rf"(?<![\w.])\d[\d.,  ]*\s?{UNITS}(?![\w/])", re.I)
# What an exercise or a formula states is data, not a measurement.
LEFT_ALONE = (nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.comment, nodes.raw)
LEFT_ALONE_CLASSES = {"exercise"}


def find(doctree, sources):
    """(line, text around, what) of each."""
    for text in doctree.findall(nodes.Text):
        parent, line, free = text.parent, None, True
        while parent is not None and free:
            if isinstance(parent, (*LEFT_ALONE, *sources)) or LEFT_ALONE_CLASSES & set(getattr(parent, "attributes", {}).get("classes", ())):
                free = False
            line = line or parent.line
            parent = parent.parent
        if not free:
            continue
        for match in TYPED.finditer(text):
            yield line, text[max(0, match.start() - 30) : match.end() + 20].replace("\n", " "), match.group()
