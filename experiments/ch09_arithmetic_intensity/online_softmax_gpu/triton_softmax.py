"""Softmax of rows in Triton, the way of its tutorial "Fused Softmax": a program holds a whole row in registers.

The tutorial picks warps by hand; here they are tuned, as its other tutorials do. At check points they are not: that
would take longer than everything else.
"""
import torch
import triton
import triton.language as tl

WARPS = (4, 8, 16, 32)


def softmax_rows(x, out, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * stride
    column = tl.arange(0, BLOCK)
    inside = column < columns
    values = tl.load(x + row + column, mask=inside, other=-float("inf")).to(tl.float32)
    weights = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row + column, (weights / tl.sum(weights, axis=0)).to(tl.bfloat16), mask=inside)


plain = triton.jit(softmax_rows, do_not_specialize=["columns", "stride"])  # compiled once for each BLOCK
tuned = triton.autotune([triton.Config({}, num_warps=warps) for warps in WARPS], key=["columns"])(triton.jit(softmax_rows))


def library():
    best = getattr(tuned, "best_config", None)
    return f"Triton {triton.__version__} (torch {torch.__version__}): " + (f"tuned, {best}" if best else "untuned")


def bind(p):
    rows, columns = p.x.shape
    if rows == 0:
        return lambda: None
    block = triton.next_power_of_2(columns)
    if rows < 1024:
        block, warps = max(block, 2048), 8 if block < 32768 else 32
        return lambda: plain[(rows,)](p.x, p.out, columns, columns, BLOCK=block, num_warps=warps)
    return lambda: tuned[(rows,)](p.x, p.out, columns, columns, BLOCK=block)
