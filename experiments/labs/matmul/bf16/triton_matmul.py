"""Triton's matrix product, after its tutorial "Persistent Matmul": TMA descriptors, a program a multiprocessor.

Tiles, stages and warps are tuned over what the tutorial tries on Hopper. Sizes of check points take the first.
"""
import torch
import triton
import triton.language as tl

GROUP = 8  # rows of tiles that are walked together, so that their blocks stay in L2


def tiles(m, n, k, stages, warps):
    return triton.Config({"TILE_M": m, "TILE_N": n, "TILE_K": k}, num_stages=stages, num_warps=warps)


CHOICES = [tiles(128, 256, 64, 3, 8), tiles(128, 256, 64, 4, 8), tiles(128, 128, 64, 4, 4), tiles(128, 128, 64, 4, 8),
           tiles(128, 128, 128, 3, 8), tiles(64, 256, 64, 4, 4)]


def persistent_matmul(a_data, b_data, c_data, m, n, k, TILE_M: tl.constexpr, TILE_N: tl.constexpr,
                      TILE_K: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr):
    """c = a b^T, all row-major."""
    a = tl.make_tensor_descriptor(a_data, shape=[m, k], strides=[k, 1], block_shape=[TILE_M, TILE_K])
    b = tl.make_tensor_descriptor(b_data, shape=[n, k], strides=[k, 1], block_shape=[TILE_N, TILE_K])
    c = tl.make_tensor_descriptor(c_data, shape=[m, n], strides=[n, 1], block_shape=[TILE_M, TILE_N // 2])
    down, across = tl.cdiv(m, TILE_M), tl.cdiv(n, TILE_N)
    for tile in tl.range(tl.program_id(0), down * across, PROGRAMS, flatten=True):
        first = tile // (GROUP * across) * GROUP
        rows = min(down - first, GROUP)
        i = (first + tile % (GROUP * across) % rows) * TILE_M
        j = tile % (GROUP * across) // rows * TILE_N
        sums = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
        for block in range(tl.cdiv(k, TILE_K)):
            sums = tl.dot(a.load([i, block * TILE_K]), b.load([j, block * TILE_K]).T, sums)
        # In halves, so that the way out takes less shared memory from the stages.
        left, right = tl.split(tl.permute(tl.reshape(sums, (TILE_M, 2, TILE_N // 2)), (0, 2, 1)))
        c.store([i, j], left.to(tl.bfloat16))
        c.store([i, j + TILE_N // 2], right.to(tl.bfloat16))


plain = triton.jit(persistent_matmul)
tuned = triton.autotune(CHOICES, key=["m", "n", "k"])(triton.jit(persistent_matmul))


def library():
    best = getattr(tuned, "best_config", None)
    return f"Triton {triton.__version__} (torch {torch.__version__}): " + (f"tuned, {best}" if best else "untuned")


def bind(p):
    m, n, k = p.a.shape[0], p.b.shape[0], p.a.shape[1]
    if m == 0:
        return lambda: None
    # Memory for the descriptors, which the kernel writes.
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    fixed = {"GROUP": GROUP, "PROGRAMS": programs}
    if m < 1024:
        first = {**CHOICES[0].kwargs, "num_stages": CHOICES[0].num_stages, "num_warps": CHOICES[0].num_warps}
        return lambda: plain[(programs,)](p.a, p.b, p.out, m, n, k, **fixed, **first)
    return lambda: tuned[(programs,)](p.a, p.b, p.out, m, n, k, **fixed)
