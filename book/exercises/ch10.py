"""Keys of chapter 10's exercises, computed from first principles."""
import itertools
import math
import struct
from fractions import Fraction


def single(x):
    """The float32 nearest to x."""
    return struct.unpack("f", struct.pack("f", x))[0]


def bits(x):
    """What tells floats apart: -0 is not +0, and a NaN is a NaN."""
    return "nan" if math.isnan(x) else struct.pack("f", x)


def keeps_all_floats():
    """The rewrite of the four that no float tells apart."""
    rewrites = {
        "x - x → 0": (lambda x: x - x, lambda x: 0.0),
        "0 * x → 0": (lambda x: 0 * x, lambda x: 0.0),
        "x + 0 → x": (lambda x: x + 0.0, lambda x: x),
        "x * 2 → x + x": (lambda x: x * 2, lambda x: x + x),
    }
    values = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 2.0**-149, 2.0**-127, single(3.4e38), single(0.1)]
    kept = [name for name, (a, b) in rewrites.items()
            if all(bits(single_or_inf(a(x))) == bits(single_or_inf(b(x))) for x in values)]
    assert len(kept) == 1
    return kept[0]


def single_or_inf(x):
    try:
        return single(x)
    except OverflowError:
        return math.copysign(math.inf, x)


def there_and_back():
    """2x / 2 for x = 3,000,000,000 in unsigned arithmetic of 32 bits."""
    x = 3_000_000_000
    result = (2 * x % 2**32) // 2
    assert x < 2**32 and result == x - 2**31
    return result


def divide_by_ten():
    """For 8 bits: the smallest N that the law accepts for d = 10, and the multiplier; all 256 numbers are tried."""
    def factor(power):
        return -(-2**power // 10)

    power = next(n for n in range(8, 32) if (factor(n) * 10 - 2**n) * 2**8 <= 2**n)
    assert all(factor(power) * x >> power == x // 10 for x in range(256))
    assert any(factor(power - 1) * x >> power - 1 != x // 10 for x in range(256))
    big = -(-2**35 // 10)  # the one that g++ uses for 32 bits
    assert big == 3435973837 and (big * 10 - 2**35) * 2**32 <= 2**35
    return [power, factor(power)]


def first_tenth_that_differs():
    """The smallest positive integer x for which x / 10 and x times the float 0.1 are different floats."""
    # A quotient rounded to 53 digits and then to 24 is rounded as if once, since 53 >= 2 * 24 + 2.
    x = next(x for x in range(1, 1000) if single(x / 10) != single(x * single(0.1)))
    assert all(single(x / 8) == single(x * 0.125) for x in range(1, 1000))
    return x


def rounded(x, digits):
    """A positive fraction to the nearest number of so many binary digits, ties to even."""
    power = 0
    while x >= 2**digits:
        x, power = x / 2, power + 1
    while x < 2 ** (digits - 1):
        x, power = x * 2, power - 1
    whole = x.numerator // x.denominator
    rest = x - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2):
        whole += 1
    return whole * Fraction(2) ** power


def divisor_of_seven_digits():
    """The divisor between 64 and 127, no power of two, whose rounded reciprocal divides every number of seven digits."""
    digits, numbers = 7, range(64, 128)
    good = [d for d in numbers if all(rounded(Fraction(x, d), digits) == rounded(x * rounded(Fraction(1, d), digits), digits)
                                      for x in numbers)]
    assert len(good) == 2 and good[0] == 64
    return good[1]


def overlapping_offset():
    """a[3] after add_offset(a, a, a + 2, 4) on 1, 2, 3, 4, as written and with the offset loaded once."""
    def run(once):
        a = [1, 2, 3, 4]
        first = a[2]
        for i in range(4):
            a[i] = a[i] + (first if once else a[2])
        return a
    return [run(False)[3], run(True)[3]]


def skewed_distance():
    """The distance (1, -1) after the skew (i, j) -> (i, i + j), and after the interchange that follows."""
    i, j = 1, -1
    skewed = (i, i + j)
    swapped = skewed[::-1]
    assert next(x for x in skewed if x) > 0 and next(x for x in swapped if x) > 0
    assert next(x for x in (j, i) if x) < 0  # without the skew
    return [*skewed, *swapped]


def run_nest(order, n=6):
    """a[i][j] = a[i-1][j-1] + 2 a[i-1][j+1] over the steps in an order."""
    a = [[3 * i + 7 * j * j for j in range(n + 2)] for i in range(n + 1)]
    for i, j in order:
        a[i][j] = a[i - 1][j - 1] + 2 * a[i - 1][j + 1]
    return a


def interchange():
    """Whether the loops over i and j may be interchanged, and whether after the skew j' = i + j; all are run."""
    n = 6
    steps = [(i, j) for i in range(1, n + 1) for j in range(1, n + 1)]
    right = run_nest(steps)
    swapped = run_nest(sorted(steps, key=lambda s: (s[1], s[0]))) == right
    skewed = run_nest(sorted(steps, key=lambda s: (s[0] + s[1], s[0]))) == right
    return {(True, True): "legal at once", (False, True): "legal only after the skew",
            (False, False): "illegal, skewed or not"}[swapped, skewed]


def legal_orders():
    """How many of the six orders of three loops are legal with the distances (1, 0, -1) and (0, 1, -1)."""
    def positive(d):
        return next(x for x in d if x) > 0
    return sum(all(positive([d[k] for k in order]) for d in ((1, 0, -1), (0, 1, -1)))
               for order in itertools.permutations(range(3)))


def vectorises():
    """The loop of the four that gives the same when four steps read before any of them writes."""
    loops = {"a[i] = a[i - 1] + 1": (lambda i: i, lambda i: i - 1), "a[i] = a[i - 3] + 1": (lambda i: i, lambda i: i - 3),
             "a[i] = a[i + 1] + 1": (lambda i: i, lambda i: i + 1), "a[0] = a[0] + a[i]": (lambda i: 0, lambda i: 0)}

    def run(name, lanes):
        write, read = loops[name]
        a = [5 * i * i for i in range(40)]
        for start in range(4, 36, lanes):
            steps = range(start, start + lanes)
            values = [a[read(i)] + (a[i] if name.startswith("a[0]") else 1) for i in steps]
            for i, value in zip(steps, values):
                a[write(i)] = value
        return a

    good = [name for name in loops if run(name, 4) == run(name, 1)]
    assert len(good) == 1
    return good[0]


def keeps_order_in_tiles(distances, size=12, tile=4):
    """Whether all pairs of steps at these distances keep their order in square tiles."""
    steps = list(itertools.product(range(size), repeat=2))
    place = {s: k for k, s in enumerate(sorted(steps, key=lambda s: (s[0] // tile, s[1] // tile, s)))}
    return all(place[s] < place[t] for s in steps for d in distances if (t := (s[0] + d[0], s[1] + d[1])) in place)


def smallest_skew():
    """The smallest f for which x' = x + f t lets a stencil with distances (1, -2) to (1, 2) be tiled."""
    f = next(f for f in range(10) if keeps_order_in_tiles([(1, d + f) for d in range(-2, 3)]))
    assert min(d + f for d in range(-2, 3)) == 0
    assert keeps_order_in_tiles([(1, 0), (0, 1)]) and not keeps_order_in_tiles([(1, -1)])
    return f


def overlapping_product():
    """y = A x for A = ((1, 2), (3, 4)) where y is x = (1, 1): y[i] in memory, and in a register until the row is done."""
    a = ((1, 2), (3, 4))

    def multiply(kept):
        x = y = [1, 1]
        for i in range(2):
            if kept:
                y[i] = sum(a[i][k] * x[k] for k in range(2))
            else:
                y[i] = 0
                for k in range(2):
                    y[i] += a[i][k] * x[k]
        return y
    return multiply(kept=False) + multiply(kept=True)
