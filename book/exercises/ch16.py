"""Keys of chapter 16's exercises, computed from first principles."""
import itertools
import math
from statistics import NormalDist


def bits_a_number():
    """Bits of a number with its share of scale and zero point, counted over a group."""
    def bits(code, group, scale, zero=0):
        return (sum(code for _ in range(group)) + scale + zero) / group
    return [bits(4, 128, 16, 4), bits(4, 32, 8), bits(4, 16, 8)]


def grid_of_a_group(low=-0.6, high=0.9, codes=16):
    """Step, largest and rms error of a uniform grid, by rounding a fine sweep of its range."""
    points = [low + i * (high - low) / (codes - 1) for i in range(codes)]
    step = points[1] - points[0]
    sweep = [low + (high - low) * (i + 0.5) / 100_000 for i in range(100_000)]
    errors = [abs(x - points[min(round((x - low) / step), codes - 1)]) for x in sweep]
    assert min(abs(p) for p in points) < 1e-12  # zero is a point
    return [step, max(errors), math.sqrt(sum(e * e for e in errors) / len(errors))]


def outlier_bits(outlier=30, largest_code=127):
    """Bits that a larger number takes from the others of its group."""
    return math.log2((outlier / largest_code) / (1 / largest_code))


E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)


def nearest(x, points):
    return min(points, key=lambda p: abs(p - x))


def largest_of_a_block(amax=7):
    """Percent by which a block's largest number is off in MXFP4 and in NVFP4."""
    e4m3 = [m / 8 * 2.0**e for e in range(-6, 9) for m in range(8, 16)]
    scales = [2.0 ** (math.floor(math.log2(amax)) - 2), nearest(amax / 6, e4m3)]
    return [100 * abs(nearest(amax / s, E2M1) * s - amax) / amax for s in scales]


def snr_of_int8(block=128, largest_code=127):
    """SNR in dB of normal numbers in int8, with errors of mean square step^2 / 12."""
    def mean_square_of_largest(n, width=1e-3):
        below = NormalDist().cdf
        return sum(2 * m * (1 - (2 * below(m) - 1) ** n) * width for m in (width * (i + 0.5) for i in range(9000)))
    assert math.isclose(mean_square_of_largest(1), 1, rel_tol=1e-4)
    return 10 * math.log10(12 * largest_code**2 / mean_square_of_largest(block))


def loss(h, delta):
    n = range(len(delta))
    return sum(delta[i] * h[i][j] * delta[j] for i in n for j in n)


def inverse(h):
    n = len(h)
    a = [list(row) + [float(i == j) for j in range(n)] for i, row in enumerate(h)]
    for c in range(n):
        p = max(range(c, n), key=lambda r: abs(a[r][c]))
        a[c], a[p] = a[p], a[c]
        a[c] = [x / a[c][c] for x in a[c]]
        for r in range(n):
            if r != c:
                a[r] = [x - a[r][c] * y for x, y in zip(a[r], a[c])]
    return [row[n:] for row in a]


def upper(h):
    """U with inverse(h) = U' U, upper triangular."""
    n, g = len(h), inverse(h)
    u = [[0.0] * n for _ in range(n)]
    for i in range(n):
        u[i][i] = math.sqrt(g[i][i] - sum(u[k][i] ** 2 for k in range(i)))
        for j in range(i + 1, n):
            u[i][j] = (g[i][j] - sum(u[k][i] * u[k][j] for k in range(i))) / u[i][i]
    return u


def gptq(w, h):
    """Whole numbers for w, first weight first; the sum of e^2 has to be the loss."""
    u, now, q, squares = upper(h), list(w), [], 0.0
    for j in range(len(w)):
        q.append(round(now[j]))
        e = (now[j] - q[j]) / u[j][j]
        squares += e * e
        for k in range(j + 1, len(w)):
            now[k] -= e * u[j][k]
    assert math.isclose(squares, loss(h, [a - b for a, b in zip(w, q)]))
    return q


def gptq_by_hand(w=(0.3, 0.6)):
    """Losses of rounding to nearest and of GPTQ; and the chapter's example, where GPTQ finds the best of all codes."""
    def losses(w, h):
        return [loss(h, [a - b for a, b in zip(w, q)]) for q in ([round(x) for x in w], gptq(w, h))]
    example, h = (0.4, 0.4), [[1, 0.9], [0.9, 1]]
    best = min(loss(h, [a - b for a, b in zip(example, q)]) for q in itertools.product(range(-2, 4), repeat=2))
    assert math.isclose(losses(example, h)[0], 0.608) and math.isclose(losses(example, h)[1], 0.088) and math.isclose(best, 0.088)
    return losses(w, [[1, -0.8], [-0.8, 1]])


def order_of_inputs(large=9, small=1, r=0.8):
    """Sums of what counts of each input: nearest, GPTQ with the large one first, and with the small one first."""
    cross = r * math.sqrt(large * small)

    def counted(a, b):
        u = upper([[a, cross], [cross, b]])
        return [1 / u[0][0] ** 2, 1 / u[1][1] ** 2]
    both = counted(large, small), counted(small, large)
    assert math.isclose(math.prod(both[0]), math.prod(both[1]))
    return [large + small, sum(both[0]), sum(both[1])]


def diagonal_hessian():
    """What GPTQ does with a diagonal matrix of moments, tried on weights in both orders."""
    w, moments = [0.4, -1.7, 2.6, 0.1, -0.6], [9, 1, 4, 0.25, 2]

    def codes(order):
        h = [[moments[i] * (i == j) for j in order] for i in order]
        return dict(zip(order, gptq([w[i] for i in order], h)))
    first, last = codes(range(5)), codes([4, 3, 2, 1, 0])
    texts = {"it rounds every weight to nearest": first == dict(enumerate(map(round, w))),
             "it rounds every weight down": first == dict(enumerate(map(math.floor, w))),
             "it sets small weights to zero": all((q == 0) == (abs(x) < 1) for x, q in zip(w, first.values())),
             "it depends on the order of the inputs": first != last}
    assert sum(texts.values()) == 1
    return next(text for text, true in texts.items() if true)


def awq_scale(w=(0.2, 1, -0.5, 0.7), moments=(100, 1, 1, 1)):
    """The best factor of the first weight, by trying many, and the share of the error that is left."""
    def error(d):
        step = max(abs(x * (d if i == 0 else 1)) for i, x in enumerate(w))
        return step**2 * sum(m / (d * d if i == 0 else 1) for i, m in enumerate(moments))
    best = min((1 + i / 1000 for i in range(20_000)), key=error)
    return [best, error(best) / error(1)]


def rows_until_arithmetic(peak=900e12, bandwidth=4.5e12):
    """Rows at which bytes and products of a matrix of weights take equally long."""
    def rows(bits, weights=1e6):
        return bits * weights / 8 / bandwidth / (2 * weights / peak)
    return [rows(16), rows(8), rows(4.25)]


def kv_bytes(heads=8, dims=64):
    """Bytes of a token in one layer's cache."""
    numbers = 2 * heads * dims
    return [numbers * 2, numbers + numbers // 16, numbers // 2 + numbers // 16]


def instructions_a_weight():
    """Lane instructions in the time in which a 4-bit weight arrives."""
    return 132 * 128 * 1.75e9 / (4.2e12 / 0.5)
