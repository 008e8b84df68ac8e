"""Keys of chapter 8's exercises, computed from first principles."""
import itertools
import math
from fractions import Fraction

WORD, LINE = 4, 64


def largest(fits):
    """The largest side T from 1 on that fits, when all smaller ones do."""
    return next(t for t in itertools.count(1) if not fits(t + 1))


def three_tiles():
    """The largest T for which three T x T tiles of floats fit in 32 KiB."""
    side = largest(lambda t: 3 * t * t * WORD <= 32 * 1024)
    assert 3 * side**2 * WORD <= 32 * 1024 < 3 * (side + 1) ** 2 * WORD
    return side


def words_loaded(n, tile):
    """Words of A and B that a product of three tiles loads while a tile of C stays, counted by walking the tiles."""
    words = 0
    for _ in range(0, n, tile):
        for _ in range(0, n, tile):
            for _ in range(0, n, tile):
                words += 2 * tile * tile
    return words


def intensities():
    """FLOP/B of T x T tiles with T = 64: words of 4 bytes, and of 2."""
    n, tile = 256, 64
    flops = 2 * n**3
    keys = [flops / (words_loaded(n, tile) * size) for size in (4, 2)]
    assert keys[0] == tile / 4 and keys[1] == tile / 2
    return keys


def one_tile():
    """The largest T x T tile of C beside T words of A and one of B in 8192 words; and its loads over the bound's leading term."""
    words = 8192
    side = largest(lambda t: t * t + t + 1 <= words)
    return [side, (2 / side) / (2 / math.sqrt(words))]


def stencil():
    """Numbers of a 5 x 5 stencil for each point: into a tile of 64 x 64 points, and into registers for a column of 16."""
    def numbers(rows, columns):
        points = itertools.product(range(rows), range(columns))
        near = list(itertools.product(range(-2, 3), repeat=2))
        return len({(i + di, j + dj) for i, j in points for di, dj in near}) / (rows * columns)
    assert numbers(1, 1) == 25 and numbers(8, 1) == 7.5 and numbers(32, 32) == 36**2 / 32**2
    return [numbers(64, 64), numbers(16, 1)]


def steps(v):
    """The three shadows of a set of steps (i, j, k): elements of A, of B and of C."""
    return len({(i, k) for i, j, k in v}), len({(k, j) for i, j, k in v}), len({(i, j) for i, j, k in v})


def shadows():
    """The most steps with 96 elements of A, 96 of B and 64 of C; the bound, and a block that reaches it."""
    block = list(itertools.product(range(8), range(8), range(12)))
    assert steps(block) == (96, 96, 64)
    most = math.isqrt(96 * 96 * 64)
    assert most == len(block)
    for points in ([(0, 0, 0), (1, 1, 1)], [(0, 1, 2), (0, 1, 3), (0, 2, 2)], block[::3]):
        assert len(points) <= math.sqrt(math.prod(steps(points)))  # the inequality, on sets that are no blocks
    return most


class Cache:
    """Sets of lines; each drops its least recently used one."""

    def __init__(self, sets, ways):
        self.lines, self.ways, self.misses = [[] for _ in range(sets)], ways, 0

    def hit(self, line):
        held = self.lines[line % len(self.lines)]
        found = line in held
        if found:
            held.remove(line)
        else:
            self.misses += 1
            if len(held) == self.ways:
                held.pop(0)
        held.append(line)
        return found


def transpose_lines(n, tile, columns=32):
    """Lines that enter L1 and L2 for each 16 elements of a transpose: the first columns, or the first row of tiles."""
    l1, l2 = Cache(64, 8), Cache(2048, 8)
    if tile:
        order = [(i, j) for j0 in range(0, n, tile) for j in range(j0, min(j0 + tile, n)) for i in range(tile)]
    else:
        order = [(i, j) for j in range(columns) for i in range(n)]
    base = -(-n * n * WORD // (1 << 21)) * (1 << 21)  # the result begins with a page of 2 MiB
    for i, j in order:
        for address in ((i * n + j) * WORD, base + (j * n + i) * WORD):
            if not l1.hit(address // LINE):
                l2.hit(address // LINE)
    return [Fraction(16 * cache.misses, len(order)) for cache in (l1, l2)]


def lines_into_l2():
    """The plain transpose at n = 1024 and n = 1040; the chapter's table beside it."""
    table = [transpose_lines(n, tile) for n, tile in ((2048, 0), (2048, 16), (2000, 0), (2000, 16))]
    assert table == [[17, 17], [17, 2], [17, 2], [2, 2]]
    return [float(transpose_lines(n, 0)[1]) for n in (1024, 1040)]


def tall_tile():
    """Rows that a tile one line wide may have so that its input lines fit in L1, for n = 2048 and 2000."""
    def fits(n, rows):
        counts = [0] * 64
        for i in range(rows):
            counts[i * n * WORD // LINE % 64] += 1
        return max(counts) <= 8
    return [largest(lambda rows: fits(n, rows)) for n in (2048, 2000)]


def prefix_orders():
    """Which order of s(i, j) = x(i, j) + s(i-1, j) + s(i, j-1) - s(i-1, j-1) gives other values, tried on integers."""
    n = 8
    x = [[(7 * i + 3 * j + i * j) % 11 - 5 for j in range(n)] for i in range(n)]

    def run(order):
        s = [[0] * (n + 1) for _ in range(n + 1)]
        for i, j in order:
            s[i + 1][j + 1] = x[i][j] + s[i][j + 1] + s[i + 1][j] - s[i][j]
        return s
    all_of = list(itertools.product(range(n), repeat=2))
    orders = {
        "columns instead of rows": sorted(all_of, key=lambda p: (p[1], p[0])),
        "tiles of 4 x 4, row by row of tiles": sorted(all_of, key=lambda p: (p[0] // 4, p[1] // 4, p)),
        "diagonals with i + j rising": sorted(all_of, key=sum),
        "rows, each from right to left": sorted(all_of, key=lambda p: (p[0], -p[1])),
    }
    wrong = [name for name, order in orders.items() if run(order) != run(all_of)]
    assert len(wrong) == 1 and all(sorted(order) == all_of for order in orders.values())
    return wrong[0]


def z_place(i, j, bits=3):
    """The place of (i, j) in Z-order: the bits of i and j in turn, those of i first."""
    return sum((i >> b & 1) << 2 * b + 1 | (j >> b & 1) << 2 * b for b in range(bits))


def z_order():
    places = [z_place(i, j) for i, j in itertools.product(range(8), repeat=2)]
    assert sorted(places) == list(range(64))  # a bijection
    quarter = sorted(z_place(i, j) for i in range(4) for j in range(4, 8))
    assert quarter == list(range(quarter[0], quarter[0] + 16))  # an aligned square is a run
    return z_place(5, 3)


def needed_tiles():
    """Sides from which on bytes are not the limit: 60 TFLOP/s with words of 4 bytes, 800 TFLOP/s with 2, at 4 TB/s."""
    def side(flops, bandwidth, word):
        def seconds_of_bytes(t):  # for each multiply-add
            return 2 / t * word / bandwidth
        return next(t for t in itertools.count(1) if seconds_of_bytes(t) <= 2 / flops * (1 + 1e-12))
    keys = [side(60e12, 4e12, 4), side(800e12, 4e12, 2)]
    assert keys[0] == 4 * 60 / 4 and keys[1] == 2 * 800 / 4
    return keys


def halves():
    """Halving a 1024-cube until three tiles fit in 8192 words: the side, and its loads of A and B over those of T = 52."""
    side = 1024
    while 3 * side * side > 8192:
        side //= 2
    return [side, (2 / side) / (2 / 52)]


def bytes_of_tiles():
    """GB of A and B that come in with tiles of 16 and n = 1024, and the least power of two with which 10 GB/s bring them in 30 ms."""
    def gigabytes(tile):
        return words_loaded(1024, tile) * WORD / 1e9
    assert gigabytes(32) == 8 * 1024**3 / 32 / 1e9
    return [gigabytes(16), next(2**e for e in range(3, 11) if gigabytes(2**e) <= 10 * 0.030)]
