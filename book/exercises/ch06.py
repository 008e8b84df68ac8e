"""Keys of chapter 6's exercises, computed from first principles."""
import cmath
import itertools
import math
import random
import struct
from fractions import Fraction


def single(x):
    """The float32 nearest to x."""
    return struct.unpack("f", struct.pack("f", x))[0]


def rank(table):
    """Of a table of fractions, by elimination."""
    rows, found = [[Fraction(x) for x in row] for row in table], 0
    for column in range(len(rows[0])):
        pivot = next((r for r in range(found, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        for r in range(found + 1, len(rows)):
            factor = rows[r][column] / rows[found][column]
            rows[r] = [x - factor * y for x, y in zip(rows[r], rows[found])]
        found += 1
    return found


class Count:
    """A number that counts the multiplications done with its kind."""
    multiplications = 0

    def __init__(self, value):
        self.value = value

    def __mul__(self, other):
        Count.multiplications += 1
        return Count(self.value * other.value)

    def __add__(self, other):
        return Count(self.value + other.value)


def counted(work):
    """(result, multiplications) of work()."""
    before = Count.multiplications
    result = work()
    return result, Count.multiplications - before


def product(a, b):
    """Of two matrices, by the definition."""
    def element(row, j):
        total = row[0] * b[0][j]
        for k in range(1, len(b)):
            total = total + row[k] * b[k][j]
        return total
    return [[element(row, j) for j in range(len(b[0]))] for row in a]


def matrix(rows, columns, source):
    return [[Count(source.randrange(1, 9)) for _ in range(columns)] for _ in range(rows)]


def plain(table):
    return [[x.value for x in row] for row in table]


# ---- filters ----


def blur_savings():
    """Multiplications a pixel of one pass over those of two, for 3, 7 and 15 taps; both are run and counted for 3 on a small image."""
    source, taps, size = random.Random(6), 3, 5
    image = matrix(size + taps - 1, size + taps - 1, source)
    column, row = matrix(1, taps, source)[0], matrix(1, taps, source)[0]
    table = [[u * v for v in row] for u in column]

    def weighted(pairs):
        (w, x), *rest = pairs
        total = w * x
        for w, x in rest:
            total = total + w * x
        return total

    def one_pass():
        return [[weighted([(table[a][b], image[i + a][j + b]) for a in range(taps) for b in range(taps)]) for j in range(size)]
                for i in range(size)]

    def two_passes():
        between = [[weighted([(column[a], image[i + a][j]) for a in range(taps)]) for j in range(size + taps - 1)] for i in range(size)]
        return [[weighted([(row[b], between[i][j + b]) for b in range(taps)]) for j in range(size)] for i in range(size)]
    (direct, many), (factored, few) = counted(one_pass), counted(two_passes)
    assert plain(direct) == plain(factored)
    assert many == taps**2 * size**2 and few == taps * size * (size + taps - 1) + taps * size**2
    return [t * t / (t + t) for t in (3, 7, 15)]


def cube_savings():
    """The same for a cube of 7 x 7 x 7 weights in three passes."""
    directions = list(itertools.product(range(7), repeat=3))
    return len(directions) / (7 + 7 + 7)


def stencil_rank():
    """Rank of the 5 x 5 weights 1/(1 + a^2 + b^2), and the multiply-adds a pixel of as many pairs of passes."""
    table = [[Fraction(1, 1 + a * a + b * b) for b in range(-2, 3)] for a in range(-2, 3)]
    r = rank(table)
    assert rank([row[:3] for row in table[:3]]) == r  # three rows, three columns: the rest are repeats
    return [r, r * (5 + 5)]


def not_separable():
    """The only one of four tables whose rank is not 1."""
    tables = {"rows (1 2 1), (2 4 2), (1 2 1)": [[1, 2, 1], [2, 4, 2], [1, 2, 1]],
              "rows (-1 0 1), (-2 0 2), (-1 0 1)": [[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]],
              "rows (1 1 1), (1 1 1), (1 1 1)": [[1, 1, 1]] * 3,
              "rows (0 1 0), (1 1 1), (0 1 0)": [[0, 1, 0], [1, 1, 1], [0, 1, 0]]}
    odd = [name for name, table in tables.items() if rank(table) != 1]
    assert len(odd) == 1
    return odd[0]


# ---- rank ----


def largest_paying_rank(m, n):
    return max(r for r in range(m * n // (m + n) + 2) if r * (m + n) < m * n)


def rank_limits():
    """The largest rank at which factors take fewer numbers than the matrix: 4096 x 4096 and 2880 x 5760."""
    limits = [largest_paying_rank(4096, 4096), largest_paying_rank(2880, 5760)]
    assert limits[0] == 4096 * 4096 // (4096 + 4096) - 1
    assert limits[1] == math.ceil(2880 * 5760 / (2880 + 5760)) - 1
    return limits


def product_first():
    """Multiplications of (U V^T) x over those of U (V^T x), 4096 x 4096 of rank 16; the orders are run and counted small."""
    def costs(n, r):
        return n * n * r + n * n, 2 * n * r
    source = random.Random(16)
    u, v, x = matrix(6, 2, source), matrix(2, 6, source), matrix(6, 1, source)
    (left, many), (right, few) = counted(lambda: product(product(u, v), x)), counted(lambda: product(u, product(v, x)))
    assert plain(left) == plain(right) and (many, few) == costs(6, 2)
    many, few = costs(4096, 16)
    return many / few


# ---- orders ----


def kronecker_saving():
    """Multiplications of (A (x) B) vec X over those of B X A^T, n = 64; equality and counts are checked for n = 3."""
    n, source = 3, random.Random(64)
    a, b, x = (matrix(n, n, source) for _ in range(3))
    table = [[Count(a[q][j].value * b[p][i].value) for j in range(n) for i in range(n)] for q in range(n) for p in range(n)]
    stacked = [[x[i][j]] for j in range(n) for i in range(n)]
    whole, many = counted(lambda: product(table, stacked))
    pieces, few = counted(lambda: product(product(b, x), [list(row) for row in zip(*a)]))
    assert [row[0].value for row in whole] == [pieces[p][q].value for q in range(n) for p in range(n)]
    assert (many, few) == (n**4, 2 * n**3)
    return 64**4 / (2 * 64**3)


def chain(sizes):
    """The least multiplications of a chain of matrices, matrix i being sizes[i] x sizes[i + 1]."""
    if len(sizes) == 2:
        return 0
    return min(chain(sizes[:k + 1]) + chain(sizes[k:]) + sizes[0] * sizes[k] * sizes[-1] for k in range(1, len(sizes) - 1))


def chain_orders():
    """(A B) C and A (B C) for 10 x 1000, 1000 x 5, 5 x 500."""
    p, q, r, s = 10, 1000, 5, 500
    first, second = p * q * r + p * r * s, q * r * s + p * q * s
    assert min(first, second) == chain([p, q, r, s])
    source = random.Random(5)
    a, b, c = matrix(2, 5, source), matrix(5, 3, source), matrix(3, 4, source)
    (left, cost), (right, other) = counted(lambda: product(product(a, b), c)), counted(lambda: product(a, product(b, c)))
    assert plain(left) == plain(right) and (cost, other) == (2 * 5 * 3 + 2 * 3 * 4, 5 * 3 * 4 + 2 * 5 * 4)
    return [first, second]


def brackets(sizes):
    """The multiplications of every way to bracket a chain."""
    if len(sizes) == 2:
        return [0]
    return [left + right + sizes[0] * sizes[k] * sizes[-1]
            for k in range(1, len(sizes) - 1) for left in brackets(sizes[:k + 1]) for right in brackets(sizes[k:])]


def chain_of_four():
    """Multiplications of 40 x 20, 20 x 30, 30 x 10, 10 x 30 from left to right, and in the best of all orders."""
    sizes = [40, 20, 30, 10, 30]
    every = brackets(sizes)
    assert len(every) == 5 and min(every) == chain(sizes)  # by trying all, and by the recursion
    running = sum(sizes[0] * sizes[k] * sizes[k + 1] for k in range(1, len(sizes) - 1))
    assert running in every
    return [running, min(every)]


def attention_orders():
    """Multiplications of (Q K^T) V over those of Q (K^T V): 4096 tokens, 64 numbers each; and 64 tokens."""
    def quotient(tokens, width):
        return (2 * tokens**2 * width) / (2 * tokens * width**2)
    source = random.Random(4)
    q, k, v = (matrix(6, 2, source) for _ in range(3))
    turned = [list(row) for row in zip(*k)]
    (left, many), (right, few) = counted(lambda: product(product(q, turned), v)), counted(lambda: product(q, product(turned, v)))
    assert plain(left) == plain(right) and many / few == quotient(6, 2)
    return [quotient(4096, 64), quotient(64, 64)]


def transform(x):
    n = len(x)
    return [sum(cmath.exp(-2j * cmath.pi * j * k / n) * x[j] for j in range(n)) for k in range(n)]


def transform_in_two(x, first):
    """The chapter's formula: inner sums of `first` terms, a twist, outer sums of the rest. (result, products of the sums)"""
    n, products = len(x), 0
    second = n // first
    out = [0] * n
    for k1 in range(first):
        twisted = []
        for j2 in range(second):
            inner = sum(cmath.exp(-2j * cmath.pi * j1 * k1 / first) * x[second * j1 + j2] for j1 in range(first))
            products += first
            twisted.append(cmath.exp(-2j * cmath.pi * j2 * k1 / n) * inner)
        for k2 in range(second):
            out[k1 + first * k2] = sum(cmath.exp(-2j * cmath.pi * j2 * k2 / second) * twisted[j2] for j2 in range(second))
            products += second
    return out, products


def transform_products():
    """Products in the sums of a Fourier transform of 1024 numbers: at once, as 32 x 32, and as 2 x 2 x ... x 2."""
    x = [complex(i % 5, i % 3) for i in range(12)]
    halves, products = transform_in_two(x, 3)
    assert products == 12 * (3 + 4)
    assert all(abs(a - b) < 1e-9 for a, b in zip(halves, transform(x)))
    n = 1024
    return [n * n, n * (32 + 32), n * sum([2] * int(math.log2(n)))]


# ---- limits ----


def memory_in_between():
    """Ratio of times, the longer of arithmetic and traffic: one pass (12 bytes a pixel) over two (24), with 3 and with 7 taps."""
    peak, bandwidth = 48e9, 48e9
    def ratio(taps):
        one = max(2 * taps**2 / peak, 12 / bandwidth)
        two = max(4 * taps / peak, 24 / bandwidth)
        return one / two
    assert ratio(101) > 50  # with many taps, the law
    return [ratio(3), ratio(7)]


def factors_in_cache():
    """Ratio of times of W x and U (V x), 4096 x 4096 fp32, where 16 MiB or less come from a cache at 75 GB/s and more at 25: rank 1024 and 64."""
    def seconds(numbers):
        size = 4 * numbers
        return size / (75e9 if size <= 16 << 20 else 25e9)
    def ratio(r, n=4096):
        return seconds(n * n) / seconds(r * (n + n))
    assert math.isclose(ratio(2048), 1)  # equal bytes, and both from memory
    return [ratio(1024), ratio(64)]


def exponential_rank():
    """Rank of e^(q k) for four distinct q and k, with e^(1/8) in place of which a fraction is exact enough: the base does not matter."""
    base = Fraction(9, 8)
    table = [[base**(q * k) for k in (1, 2, 3, 4)] for q in (-1, 0, 2, 5)]
    found = rank(table)
    assert rank([row[:3] for row in table[:3]]) == 3 and found == 4
    return found


def cancelled():
    """1e8 * 1 - 1e8 * (1 - 1e-8) with every number and result rounded to float32."""
    big, almost = single(1e8), single(1 - 1e-8)
    value = single(single(big * single(1.0)) - single(big * almost))
    assert almost == 1.0 and value != 1.0
    return value
