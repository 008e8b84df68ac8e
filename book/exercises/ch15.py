"""Keys of chapter 15's exercises, computed from first principles."""
import math
from fractions import Fraction

D, R = 4096, 16


def trained_numbers(d=D, r=R):
    """Numbers of an adapter, counted by its two shapes, and the matrix's numbers for each of them."""
    adapter = sum(rows * columns for rows, columns in ((d, r), (r, d)))
    return [adapter, Fraction(d * d, adapter)]


def adam_bytes(d=D, r=R):
    """MiB of the adapter, of the whole matrix, and of the adapter with the frozen matrix."""
    weight, gradient, copy, moments = 2, 2, 4, 2 * 4
    trained = weight + gradient + copy + moments
    return [b / 2**20 for b in (2 * d * r * trained, d * d * trained, 2 * d * r * trained + d * d * weight)]


def counted_product(left, right):
    """A product of matrices and its multiplications."""
    out = [[sum(x * row[j] for x, row in zip(of, right)) for j in range(len(right[0]))] for of in left]
    return out, len(left) * len(right) * len(right[0])


def orders(d=D, r=R, m=64):
    """Multiplications of (BA)X over those of B(AX); the formulas are tried on small matrices first."""
    def formulas(d, r, m):
        return d * d * r + d * d * m, 2 * d * r * m
    small = 6, 2, 3
    b, a, x = ([[(7 * i + 3 * j) % 5 for j in range(columns)] for i in range(rows)] for rows, columns in ((6, 2), (2, 6), (6, 3)))
    ba, first = counted_product(b, a)
    one, second = counted_product(ba, x)
    ax, third = counted_product(a, x)
    other, fourth = counted_product(b, ax)
    assert one == other and formulas(*small) == (first + second, third + fourth)
    product_first, vector_first = formulas(d, r, m)
    return product_first / vector_first


def operations_left(d=D, r=R):
    """Operations of a token with an adapter over those without: two for each multiply-add of each product."""
    def operations(*products):
        return sum(2 * rows * columns for rows, columns in products)
    whole = operations((d, d), (d, d), (d, d))  # W x, W' g, g x'
    thin = operations((d, d), (r, d), (d, r),  # W x, A x, B (A x)
                      (d, d), (r, d), (d, r),  # W' g, B' g, A' (B' g)
                      (d, r), (r, d))  # g (A x)', (B' g) x'
    return thin / whole


def start_at_zero():
    """Gradient descent on |(W + B A) x - target|^2 from A = B = 0, and the chapter's gradients against differences."""
    d, r, s = 3, 2, 0.5
    w = [[0.3 * i - 0.2 * j + 0.1 for j in range(d)] for i in range(d)]
    x, target = [1.0, -2.0, 0.5], [0.7, 0.1, -0.4]

    def times(m, v):
        return [sum(a * b for a, b in zip(row, v)) for row in m]

    def output(b, a):
        return [p + s * q for p, q in zip(times(w, x), times(b, times(a, x)))]

    def loss(b, a):
        return sum((y - t) ** 2 for y, t in zip(output(b, a), target)) / 2

    def gradients(b, a):
        g = [y - t for y, t in zip(output(b, a), target)]
        ax, bg = times(a, x), times(list(zip(*b)), g)
        return [[s * gi * v for v in ax] for gi in g], [[s * v * xj for xj in x] for v in bg]

    def moved(m, i, j, by):
        return [[v + by * ((i, j) == (p, q)) for q, v in enumerate(row)] for p, row in enumerate(m)]
    b, a = [[0.2, -0.1], [0.4, 0.3], [-0.5, 0.6]], [[0.1, 0.7, -0.3], [0.9, -0.4, 0.2]]
    of_b, of_a = gradients(b, a)
    for i in range(d):
        for k in range(r):
            assert math.isclose(of_b[i][k], (loss(moved(b, i, k, 1e-5), a) - loss(moved(b, i, k, -1e-5), a)) / 2e-5, rel_tol=1e-6)
            assert math.isclose(of_a[k][i], (loss(b, moved(a, k, i, 1e-5)) - loss(b, moved(a, k, i, -1e-5))) / 2e-5, rel_tol=1e-6)

    of_b, of_a = gradients([[0.0] * r] * d, [[0.0] * d] * r)
    changes = {"A": any(v for row in of_a for v in row), "B": any(v for row in of_b for v in row)}
    texts = {(False, False): "neither A nor B ever changes", (True, False): "only A changes in the first step",
             (False, True): "only B changes in the first step", (True, True): "both change in the first step"}
    return texts[changes["A"], changes["B"]]


def nearest_of_rank(values=(8, 4, 2, 1)):
    def error(rank):
        return math.sqrt(sum(v * v for v in values[rank:]) / sum(v * v for v in values))
    return [error(1), error(2)]


def merge_pays(d=D, r=R):
    """Steps until the saved bytes reach those of a merge, and rows until the saved multiply-adds do."""
    def reached(cost, saved):
        return -(-cost // saved)
    return [reached(2 * 2 * d * d, 2 * 2 * d * r), reached(d * r * d, 2 * d * r)]


def many_adapters(d=D, r=R):
    def ratio(k):
        return k * 2 * d * d / (2 * d * d + k * 2 * 2 * d * r)
    limit = d / (2 * r)
    assert math.isclose(ratio(10**9), limit, rel_tol=1e-5)
    return [ratio(64), limit]


def rank_beside_four_bits(d=D):
    """The largest rank for which four bits and an adapter are smaller, by trial."""
    def smaller(r):
        return Fraction(17, 4) * d * d + 16 * 2 * d * r < 16 * d * d
    return max(r for r in range(1, d) if smaller(r))


def there_and_back(w=Fraction(5, 4), delta=Fraction(11, 10)):
    grid = [Fraction(k, 4) for k in range(4, 8)] + [Fraction(k, 2) for k in range(4, 9)]

    def rounded(x):
        return min(grid, key=lambda p: abs(p - x))
    seen = []
    for _ in range(2):
        merged = rounded(w + delta)
        w = rounded(merged - delta)
        seen += [merged, w]
    return [float(seen[i]) for i in (0, 1, 3)]


def below_half_a_step(step=0.1, delta=0.005, d=D, r=R):
    """By rounding a fine sweep of weights, evenly spread over a step."""
    count = 20_000
    changes = []
    for i in range(count):
        w = step * (i + 0.5) / count
        changes.append(step * (math.floor((w + delta) / step + 0.5) - math.floor(w / step + 0.5)))
    assert math.isclose(sum(changes) / count, delta, rel_tol=1e-3)
    noise = math.sqrt(sum((c - delta) ** 2 for c in changes) / count) / delta
    return [sum(c != 0 for c in changes) / count, noise, noise * math.sqrt(r / d)]


def halved_scale(weight=4 - 0.01):
    codes = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
    scale = 2.0 ** (math.floor(math.log2(weight)) - 2)
    return scale * min(codes, key=lambda c: abs(c - weight / scale))
