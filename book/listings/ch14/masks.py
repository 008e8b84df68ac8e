#!/usr/bin/env python3
"""Prints what the tile programs of chapter 14 say of a row of five numbers in a block of eight, as they are and with one word changed."""
import math
import pathlib

import tiles

HERE = pathlib.Path(__file__).resolve().parent
LAB = HERE.parents[2] / "experiments/ch09_arithmetic_intensity"
SOFTMAX, RMSNORM = LAB / "online_softmax_gpu/triton_softmax.py", LAB / "fused_rmsnorm_gpu/triton_rmsnorm.py"
VARIANCE = HERE / "layer_norm.py"
ROW, COLUMNS, BLOCK = [-3.0, -1.0, -2.0, -4.0, -5.0], 5, 8


def swapped(old, new):
    """A change of a script's text that must change something."""
    def change(text):
        assert old in text
        return text.replace(old, new)
    return change


def softmax_sums_to(row, change=lambda text: text):
    x, out = tiles.Memory(1, COLUMNS, values=row), tiles.Memory(1, COLUMNS)
    tiles.load(SOFTMAX, change).plain.one(0, x, out, COLUMNS, COLUMNS, BLOCK=BLOCK)
    return math.fsum(out.row(0))


def rmsnorm_root(row, change=lambda text: text):
    """The root mean square of the results, with weights of 1."""
    x, weight, y = tiles.Memory(1, COLUMNS, values=row), tiles.Memory(COLUMNS, values=[1.0] * COLUMNS), tiles.Memory(1, COLUMNS)
    tiles.load(RMSNORM, change).plain.one(0, x, weight, y, COLUMNS, 0.0, BLOCK=BLOCK)
    return math.sqrt(math.fsum(v * v for v in y.row(0)) / COLUMNS)


def variance(row, change=lambda text: text):
    x, out = tiles.Memory(1, COLUMNS, values=row), tiles.Memory(1)
    tiles.load(VARIANCE, change).kernel.one(0, x, out, COLUMNS, BLOCK=BLOCK)
    return out.cells[0]


MINUS_INFINITY = 'other=-float("inf")'


def table():
    higher = [value + 20 for value in ROW]
    rows = [("softmax", f"`{MINUS_INFINITY}`", "their sum", 1, softmax_sums_to(ROW)),
            ("softmax", "`other=0.0`", "their sum", 1, softmax_sums_to(ROW, swapped(MINUS_INFINITY, "other=0.0"))),
            ("softmax, row + 20", "`other=0.0`", "their sum", 1, softmax_sums_to(higher, swapped(MINUS_INFINITY, "other=0.0"))),
            ("softmax", "none", "their sum", 1, softmax_sums_to(ROW, swapped(", " + MINUS_INFINITY, ""))),
            ("RMSNorm", "`other=0.0`", "their rms", 1, rmsnorm_root(ROW)),
            ("RMSNorm", "`other=1.0`", "their rms", 1, rmsnorm_root(ROW, swapped("mask=inside, other=0.0", "mask=inside, other=1.0"))),
            ("variance", "`other=0.0`, `tl.where`", "itself", 2, variance(ROW)),
            ("variance", "`other=0.0` only", "itself", 2, variance(ROW, swapped("tl.where(inside, values - mean, 0.0)", "values - mean")))]
    head = ["program", "masked lanes", "looked at", "right", "found"]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in
                     [head, ["---"] * len(head), *([*row[:-1], f"{row[-1]:.3f}"] for row in rows)]) + "\n"


def fault(row=40_000, stride=65_536, change=lambda text: text):
    """What happens to one program of softmax that has a far row, of four numbers for brevity."""
    script = tiles.load(SOFTMAX, change)
    x, out = (tiles.Memory(row + 1, stride) for _ in range(2))
    try:
        script.plain.one(row, x, out, 4, stride, BLOCK=4)
        return "no fault"
    except tiles.Fault as found:
        return str(found)


WIDE = ".to(tl.int64)"

if __name__ == "__main__":
    print(table(), end="")
    print(fault(), "|", fault(change=swapped(WIDE, "")), "|", fault(row=32_767, change=swapped(WIDE, "")))
