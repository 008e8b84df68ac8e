"""Interprets tile programs on the CPU: blocks of numbers, masks, and offsets of 32 bits that overflow.

load() runs a script of the lab's that was written for Triton, without a change and without Triton. Programs of a grid run one
after the other. Numbers are doubles and are not rounded: it is the program's logic that is tried here, not its rounding.
"""
import functools
import math
import operator
import pathlib
import sys
import types

KINDS = ["bool", "int32", "int64", "float"]  # of two operands the later one wins


class Fault(Exception):
    """An access outside of its memory. A GPU may stop here, or may read or write what belongs to something else."""


class Memory:
    """A tensor. Cells that nobody has written hold 0, so that a large one needs no room."""

    def __init__(self, *shape, values=()):
        self.shape, self.size, self.cells = shape, math.prod(shape), dict(enumerate(values))

    def within(self, offset):
        if not 0 <= offset < self.size:
            raise Fault(f"offset {offset} in a memory of {self.size}")
        return offset

    def get(self, offset):
        return self.cells.get(self.within(offset), 0.0)

    def put(self, offset, value):
        self.cells[self.within(offset)] = value

    def row(self, i):
        return [self.cells.get(i * self.shape[1] + j, 0.0) for j in range(self.shape[1])]


def wrapped(value, kind):
    """What is left of an integer in its 32 or 64 bits."""
    bits = {"int32": 32, "int64": 64}.get(kind)
    return value if bits is None else (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


class Block:
    """Numbers of one kind, or with a memory offsets into it. A block of one number is spread over a longer one."""

    def __init__(self, kind, values, memory=None):
        self.kind, self.values, self.memory = kind, [wrapped(value, kind) for value in values], memory

    def to(self, kind):
        return Block(kind, self.values)

    def spread(self, length):
        if len(self.values) not in (1, length):
            raise ValueError(f"blocks of {len(self.values)} and of {length}")
        return self.values * (length // len(self.values))


def block(value):
    """A number as Triton takes it: an integer has 32 bits if it fits, and 64 if not."""
    if isinstance(value, Block):
        return value
    if isinstance(value, Memory):
        return Block("int64", [0], value)
    if isinstance(value, float):
        return Block("float", [value])
    return Block("int32" if wrapped(value, "int32") == value else "int64", [value])


def applied(how, *operands, kind=None):
    operands = [block(operand) for operand in operands]
    length = max(len(operand.values) for operand in operands)
    memory = next((operand.memory for operand in operands if operand.memory), None)
    kind = kind or max((operand.kind for operand in operands), key=KINDS.index)
    return Block(kind, [how(*of) for of in zip(*(operand.spread(length) for operand in operands))], memory)


def quotient(a, b):
    return math.nan if b == 0 else a / b


for name, how, kind in [("add", operator.add, None), ("sub", operator.sub, None), ("mul", operator.mul, None), ("truediv", quotient, "float")]:
    setattr(Block, f"__{name}__", lambda self, other, how=how, kind=kind: applied(how, self, other, kind=kind))
    setattr(Block, f"__r{name}__", lambda self, other, how=how, kind=kind: applied(how, other, self, kind=kind))
for name in ("lt", "ge", "and"):
    setattr(Block, f"__{name}__", lambda self, other, how=getattr(operator, f"__{name}__"): applied(how, self, other, kind="bool"))


# ---- what a tile program calls ----


class Language(types.ModuleType):
    """What the scripts know as triton.language."""

    constexpr, int64, float32, bfloat16 = "constexpr", "int64", "float", "float"

    def program_id(self, axis):
        return Block("int32", [self.program])

    def arange(self, first, end):
        if (end - first) & (end - first - 1):
            raise ValueError("arange's range must be a power of 2")
        return Block("int32", range(first, end))

    def load(self, at, mask=None, other=None):
        lanes = len(at.values)
        inside = mask.spread(lanes) if mask else [True] * lanes
        other = math.nan if other is None else other  # undefined
        others = block(other).spread(lanes)
        found = []
        for offset, valid, instead in zip(at.values, inside, others):
            found.append(at.memory.get(offset) if valid else instead)
        return Block("float", found)

    def store(self, at, values, mask=None):
        lanes = len(at.values)
        inside = mask.spread(lanes) if mask else [True] * lanes
        for offset, value, valid in zip(at.values, values.spread(lanes), inside):
            if valid:
                at.memory.put(offset, value)

    def max(self, values, axis):
        return Block(values.kind, [functools.reduce(lambda a, b: a if a >= b or math.isnan(a) else b, values.values)])

    def sum(self, values, axis):
        return Block(values.kind, [math.fsum(values.values) if values.kind == "float" else sum(values.values)])

    def exp(self, values):
        return applied(math.exp, values, kind="float")

    def sqrt(self, values):
        return applied(math.sqrt, values, kind="float")

    def where(self, condition, values, instead):
        return applied(lambda c, a, b: a if c else b, condition, values, instead, kind="float")


class Kernel:
    def __init__(self, language, function):
        self.language, self.function = language, function
        self.constants = {name for name, kind in function.__annotations__.items() if kind == language.constexpr}

    def __getitem__(self, grid):
        """kernel[grid](arguments): a program for each number below grid[0], one after the other."""
        def launch(*arguments, **named):
            for program in range(grid[0]):
                self.one(program, *arguments, **named)
        return launch

    def one(self, program, *arguments, **named):
        """A single program of a grid."""
        self.language.program = program
        constants = {name: value for name, value in named.items() if name in self.constants}  # not num_warps
        self.function(*map(block, arguments), **constants)


def load(path, change=lambda text: text):
    """Runs a script with this interpreter in Triton's place; `change` may plant a mistake in its text."""
    language, triton = Language("triton.language"), types.ModuleType("triton")
    triton.language = language
    triton.jit = lambda function, **_: Kernel(language, function)
    triton.autotune = lambda choices, key: lambda kernel: kernel  # nothing to choose: no warps here
    triton.Config = lambda constants, **_: constants
    triton.next_power_of_2 = lambda n: 1 << (n - 1).bit_length()
    replaced = {"torch": types.ModuleType("torch"), "triton": triton, "triton.language": language}
    before = {name: sys.modules.get(name) for name in replaced}
    sys.modules.update(replaced)
    try:
        script = types.ModuleType("script")
        exec(compile(change(pathlib.Path(path).read_text()), str(path), "exec"), script.__dict__)
        return script
    finally:
        for name, module in before.items():
            sys.modules.pop(name) if module is None else sys.modules.update({name: module})
