"""Keys of chapter 9's exercises, computed from first principles."""
import itertools
import math


def moved(passes, elements=4096, line=16, held=64):
    """Elements that cross the bus when `passes`, lists of (array, writes), walk over arrays larger than the cache.

    A write-back cache of `held` lines with least-recently-used replacement; a store that misses fetches its line.
    """
    cache, crossed = {}, 0

    def touch(key, writes):
        nonlocal crossed
        if key in cache:
            cache[key] = cache.pop(key) or writes
            return
        crossed += line
        cache[key] = writes
        if len(cache) > held:
            oldest = next(iter(cache))
            crossed += line if cache.pop(oldest) else 0

    for accesses in passes:
        for i in range(0, elements, line):
            for array, writes in accesses:
                touch((array, i), writes)
    crossed += sum(line for dirty in cache.values() if dirty)
    return crossed / elements


def five_operations():
    """GiB read and written by five unary operations on an array of 1 GiB, in five walks and in one."""
    def walks(k):
        return sum(1 + 1 for _ in range(k))  # each reads the array and writes it
    assert walks(2) == 4
    return [walks(5), walks(1)]


def three_passes():
    """Bytes an fp32 element with stores that fetch: x to out, then two passes in place."""
    first, in_place = [("x", False), ("out", True)], [("out", False), ("out", True)]
    assert 4 * moved([first, in_place]) == 20  # the chapter's two passes
    assert 4 * moved([first]) == 12            # and its fused one
    return 4 * moved([first, in_place, in_place])


def quantised_norm():
    """Ratio of bytes: residual addition, RMSNorm and quantisation in three kernels, and in one. bf16 in, fp8 out."""
    bf16, fp8 = 2, 1
    add = 2 * bf16 + bf16   # x and residual in, the sum out
    norm = bf16 + bf16
    quantise = bf16 + fp8   # its second walk over the row hits a cache
    fused = 2 * bf16 + bf16 + fp8  # the sum is an output, for the next layer
    assert add + norm == 10 and norm + quantise == 7  # the chapter's two cases
    return (add + norm + quantise) / fused


def exceeds(bound, works):
    return bound >= max(sum(work) for work in zip(*works))


def two_bounds():
    """Least time of two passes one after the other and fused; (multiply-add unit, divider, load and store)."""
    first, second = (3, 0, 2), (0, 5, 2)
    fused = (3, 5, 2)  # the store of the first and the load of the second are gone
    separate = max(first) + max(second)
    assert exceeds(separate, [first, second])
    for works in itertools.product(range(4), repeat=4):  # the law, on every small case of two passes and resources
        pair = [works[:2], works[2:]]
        assert exceeds(sum(map(max, pair)), pair)
    return [separate, max(fused)]


def not_one_walk():
    """The function whose first output changes when only its last input does, while it has as many outputs as inputs."""
    def softmax(x):
        powers = [math.exp(v) for v in x]
        return [p / sum(powers) for p in powers]
    functions = {
        "softmax of a row": softmax,
        "the sum of exp(x)": lambda x: [sum(math.exp(v) for v in x)],
        "mean and variance of a row": lambda x: [sum(x) / len(x), sum(v * v for v in x) / len(x) - (sum(x) / len(x)) ** 2],
        "running sums of a row": lambda x: list(itertools.accumulate(x)),
    }
    x = [0.5, -1.0, 2.0, 0.25]
    changed = x[:-1] + [3.0]
    found = [name for name, f in functions.items() if len(f(x)) == len(x) and f(x)[0] != f(changed)[0]]
    assert len(found) == 1
    return found[0]


def one_walk_scale():
    """Largest |y| of an RMSNorm from two folds of one walk, checked against the definition."""
    x, w = [1.0, -2.0, 3.0, -4.0], [1.0, 1.0, 2.0, 1.0]
    squares = largest = 0.0
    for a, b in zip(x, w):  # one walk
        squares, largest = squares + a * a, max(largest, abs(a * b))
    by_folds = largest / math.sqrt(squares / len(x))
    rms = math.sqrt(sum(a * a for a in x) / len(x))
    assert math.isclose(by_folds, max(abs(a * b / rms) for a, b in zip(x, w)))
    return by_folds


def longest_cached_row():
    """Elements of bf16 a row may have so that 8 rows on each of 132 multiprocessors fit into 60 MiB."""
    rows, capacity = 8 * 132, 60 * 2**20
    dim = capacity // (rows * 2)
    assert dim * 2 * rows <= capacity < (dim + 1) * 2 * rows and 8192 < dim < 32768
    return dim


def places_used():
    """Share of the places that hold something: a row of 2880 in vectors of 8, 128 threads, whole turns."""
    vectors, threads = 2880 // 8, 128
    turns = math.ceil(vectors / threads)
    assert turns == 3
    return 100 * vectors / (turns * threads)


def halo():
    """Work of two three-point stencils fused tile by tile, over that of two walks; tiles of 64."""
    tile = 64
    needed = {i + d for i in range(tile) for d in (-1, 0, 1)}  # first-stage values that a tile of results reads
    assert len(needed) == tile + 2
    return (len(needed) + tile) / (2 * tile)


def launches():
    """Times of 48 kernels, launched one by one and as a graph; the slower of host and GPU decides."""
    kernels, host, work, boundary = 48, 4.0, 1.5, 0.3
    gpu = kernels * (work + boundary)
    return [max(kernels * host, gpu), gpu]
