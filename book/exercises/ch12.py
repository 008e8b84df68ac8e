"""Keys of chapter 12's exercises, computed from first principles."""
import itertools
import math
import struct


def fp32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def product_1920():
    """GFLOP of a product of two 1920 x 1920 matrices, by the shape of the loops."""
    def flops(n):
        return sum(n * 2 for _ in range(n * n))  # a multiplication and an addition for each k
    assert flops(3) == 54
    return flops(1920) / 1e9


def chains_needed(latency=5, units=2):
    """The fewest independent chains with which a core starts `units` FMAs in every cycle; found by simulating it."""
    def rate(chains, latency, units, cycles=2000):
        ready, started = [0] * chains, 0
        for now in range(cycles):
            for _ in range(units):
                first = min(range(chains), key=ready.__getitem__)
                if ready[first] > now:
                    break
                ready[first] = now + latency
                started += 1
        return started / cycles

    def fewest(latency, units):
        return next(c for c in itertools.count(1) if rate(c, latency, units) > 0.99 * units)
    assert fewest(4, 2) == 8  # the chapter's core
    return fewest(latency, units)


def best_register_tile(registers=16, lanes=8):
    """Rows and columns of the tile with the fewest loads for each FMA."""
    def loads(rows, vectors):
        return (rows + vectors) / (rows * vectors)
    fits = [(r, v) for r in range(1, registers) for v in range(1, registers) if r * v + v + 1 <= registers]
    assert (6, 2) in fits and (6, 3) not in fits and loads(6, 2) == 8 / 12
    rows, vectors = min(fits, key=lambda tile: loads(*tile))
    return [rows, vectors * lanes]


def fullest_set(n, rows=384, sets=64, line=64):
    counts = [0] * sets
    for k in range(rows):
        counts[k * n * 4 // line % sets] += 1  # the line of column 0 in row k
    return max(counts)


def crowded_set():
    """Lines that share the fullest set of L1: 384 rows of b, n floats apart, for n = 1024 and 1040."""
    assert fullest_set(16) == 6  # packed: the rows lie one after another, and every set has as many
    return [fullest_set(1024), fullest_set(1040)]


def copied_share():
    """Elements copied for each 1000 multiply-adds, n = 2048, both matrices copied once."""
    def share(n):
        return 2 * n * n / n**3
    assert share(2) == 1
    return 1000 * share(2048)


def words_by_walking(n, m_tile, n_tile):
    """Words loaded by a product whose tile of C stays in fast memory while k runs; counted by walking the loops."""
    words = 0
    for _ in range(0, n, m_tile):
        for _ in range(0, n, n_tile):
            for _ in range(n):
                words += m_tile + n_tile
    return words


def tile_traffic():
    """Millions of words of A and B for n = 768, with tiles of C of 96 x 96 and of 24 x 384."""
    assert words_by_walking(4, 4, 4) == 32  # one tile: A and B once
    tiles = [(96, 96), (24, 384)]
    words = [words_by_walking(768, *tile) for tile in tiles]
    for (rows, columns), counted in zip(tiles, words):
        assert math.isclose(counted, 768**3 * (1 / rows + 1 / columns))  # the law of the tile
    return [w / 1e6 for w in words]


def thread_tile():
    """The smallest t such that t x t elements a thread need no more than one read a cycle for four FMAs a cycle."""
    return next(t for t in itertools.count(1) if 2 * t / (t * t / 4) <= 1)


def tf32(x):
    bits = struct.unpack("I", struct.pack("f", x))[0]
    low = bits & 0x1FFF
    bits -= low
    if low > 0x1000 or (low == 0x1000 and bits & 0x2000):
        bits += 0x2000
    return struct.unpack("f", struct.pack("I", bits))[0]


def tf32_product():
    """Relative error, in parts in a million, of x y with x = y = 1 + 3/8192 when both are rounded to tf32."""
    assert tf32(1 + 2**-10) == 1 + 2**-10 and tf32(1 + 2**-12) == 1 and tf32(-1.5) == -1.5
    x = 1 + 3 / 8192
    return abs(tf32(x) ** 2 / x**2 - 1) * 1e6


def multiply(a, b, order):
    """A product by the given order of rounded fp32 operations, as a tuple of its elements."""
    n = len(a)
    if order == "i, j, k":
        loops = [(i, j, k) for i in range(n) for j in range(n) for k in range(n)]
    elif order == "i, k, j":
        loops = [(i, j, k) for i in range(n) for k in range(n) for j in range(n)]
    elif order == "tiles":
        h = n // 2
        loops = [(i, j, k) for j0 in (0, h) for k0 in (0, h) for i in range(n) for k in range(k0, k0 + h) for j in range(j0, j0 + h)]
    elif order == "rows apart":
        loops = [(i, j, k) for i in reversed(range(n)) for j in range(n) for k in range(n)]
    else:
        partial = [multiply_part(a, b, k0, n // 2) for k0 in (0, n // 2)]
        return tuple(fp32(x + y) for x, y in zip(*partial))
    c = [[0.0] * n for _ in range(n)]
    for i, j, k in loops:
        c[i][j] = fp32(c[i][j] + fp32(a[i][k] * b[k][j]))
    return tuple(x for row in c for x in row)


def multiply_part(a, b, k0, depth):
    n, out = len(a), []
    for i, j in itertools.product(range(n), repeat=2):
        s = 0.0
        for k in range(k0, k0 + depth):
            s = fp32(s + fp32(a[i][k] * b[k][j]))
        out.append(s)
    return out


def changes_bits():
    """Which step may change the result's bits, tried on a matrix."""
    n = 8
    a = [[fp32(math.sin(1 + 7 * i + 3 * k)) for k in range(n)] for i in range(n)]
    b = [[fp32(math.cos(2 + 5 * k + 11 * j)) for j in range(n)] for k in range(n)]
    texts = {"i, k, j": "swap the two inner loops", "tiles": "walk over blocks of B with k always rising",
             "rows apart": "give the rows of C to different threads", "panels": "sum 384 products in registers, then add the sum to C"}
    same = multiply(a, b, "i, j, k")
    different = [text for order, text in texts.items() if multiply(a, b, order) != same]
    assert len(different) == 1
    return different[0]


def strassen(a, b):
    """The product of 2 x 2 arrays of ints or of such arrays, and how many products of ints it took."""
    if not isinstance(a, list):
        return a * b, 1
    count = 0

    def times(x, y):
        nonlocal count
        z, used = strassen(x, y)
        count += used
        return z

    def plus(x, y, sign=1):
        return [[plus(p, q, sign) for p, q in zip(r, s)] for r, s in zip(x, y)] if isinstance(x, list) else x + sign * y

    def minus(x, y):
        return plus(x, y, -1)
    (a11, a12), (a21, a22), (b11, b12), (b21, b22) = *a, *b
    m1, m2, m3 = times(plus(a11, a22), plus(b11, b22)), times(plus(a21, a22), b11), times(a11, minus(b12, b22))
    m4, m5 = times(a22, minus(b21, b11)), times(plus(a11, a12), b22)
    m6, m7 = times(minus(a21, a11), plus(b11, b12)), times(minus(a12, a22), plus(b21, b22))
    return [[plus(minus(plus(m1, m4), m5), m7), plus(m3, m5)], [plus(m2, m4), plus(plus(minus(m1, m2), m3), m6)]], count


def strassen_products():
    """Products of numbers for 8 x 8 matrices, three levels of Strassen; checked against the definition."""
    def nested(full, i, j, size):
        if size == 1:
            return full[i][j]
        h = size // 2
        return [[nested(full, i + p * h, j + q * h, h) for q in range(2)] for p in range(2)]
    a = [[(3 * i + 5 * k) % 7 - 3 for k in range(8)] for i in range(8)]
    b = [[(2 * k + 9 * j) % 11 - 5 for j in range(8)] for k in range(8)]
    c = [[sum(a[i][k] * b[k][j] for k in range(8)) for j in range(8)] for i in range(8)]
    got, products = strassen(nested(a, 0, 0, 8), nested(b, 0, 0, 8))
    assert got == nested(c, 0, 0, 8)
    return products


def half_efficient():
    """The size at which a call of fixed cost 10 us and a peak of 60 TFLOP/s take equally long."""
    low, high = 1.0, 1e4
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if 2 * middle**3 / 60e12 < 10e-6 else (low, middle)
    return low
