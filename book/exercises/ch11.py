"""Keys of chapter 11's exercises, computed from first principles."""
import itertools
import math
import struct
from array import array
from fractions import Fraction


def nearest(x, digits, lowest=-10**6):
    """The float with that many binary digits nearest to x, a Fraction or a number; ties go to an even last digit.
    `lowest` is the exponent of the smallest positive float."""
    x = Fraction(x)
    if x == 0:
        return x
    exponent = x.numerator.bit_length() - x.denominator.bit_length()  # 2^(exponent - 1) < |x| < 2^(exponent + 1)
    exponent -= abs(x) < Fraction(2) ** exponent
    gap = Fraction(2) ** max(exponent + 1 - digits, lowest)
    return round(x / gap) * gap  # Python rounds halves to even


def fp32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def bf16(x):
    return nearest(x, 8, -133)


for value in (1 / 3, 2.5, -1e-40, 1e30, 16777217.0, 0.1 + 2**-30):
    assert nearest(value, 24, -149) == Fraction(fp32(value))


def ones_in_bf16():
    """256 + 1 + 1 with the two bracketings."""
    forward, backward = bf16(bf16(256 + 1) + 1), bf16(256 + bf16(1 + 1))
    assert forward != backward
    return [float(forward), float(backward)]


def harmonic():
    """The first term that leaves an fp32 sum of 1/k as it is, and that sum.

    Adding 1.5 * 2^(29 + e) and subtracting it again rounds a double between 2^e and 2^(e + 1) to the digits of fp32.
    """
    terms = array("f", (1 / k for k in range(1, 2**21 + 2)))
    s = 0.0
    for x in terms[:1000]:
        s = fp32(s + x)
    low, limit, magic = 4.0, 8.0, 1.5 * 2.0**31
    for k, x in enumerate(terms[1000:], 1001):
        t = s + x + magic - magic
        if not s < t < limit:
            if t == s:
                break
            low, limit, magic = limit, 2 * limit, 2 * magic
            t = s + x + magic - magic
        s = t
    assert low <= s < limit and fp32(s) == s == fp32(s + terms[k - 1]) and fp32(s + terms[k - 2]) > s
    return [k, s]


def largest_fp8():
    """The largest numbers of E4M3 and E5M2, by decoding all codes."""
    def values(exponent_bits, mantissa_bits, is_number):
        bias = 2 ** (exponent_bits - 1) - 1
        for e, m in itertools.product(range(2**exponent_bits), range(2**mantissa_bits)):
            if is_number(e, m):
                yield (2**mantissa_bits * (e > 0) + m) * 2.0 ** (max(e, 1) - bias - mantissa_bits)
    e4m3 = list(values(4, 3, lambda e, m: (e, m) != (15, 7)))
    e5m2 = list(values(5, 2, lambda e, m: e != 31))
    assert len(set(e4m3)) == 127 and min(v for v in e4m3 if v) == 2**-9
    assert len(set(e5m2)) == 124 and min(v for v in e5m2 if v) == 2**-16
    return [max(e4m3), max(e5m2)]


def loss_scale():
    """Powers of two that lift 1e-9 in fp16 above zero, to the smallest number, and to the smallest normal one."""
    gradient = Fraction(1, 10**9)
    fp16 = lambda x: nearest(x, 11, -24)
    assert fp16(gradient) == 0 and Fraction(struct.unpack("e", struct.pack("e", 3.2e-8))[0]) == fp16(Fraction(3.2e-8))
    first = lambda holds: next(2**k for k in range(64) if holds(2**k * gradient))
    keys = [first(lambda x: fp16(x) > 0), first(lambda x: x >= Fraction(1, 2**24)), first(lambda x: x >= Fraction(1, 2**14))]
    assert keys[1] == 2**6
    return keys


def two_sum(a, b, fl):
    s = fl(a + b)
    b1 = fl(s - a)
    a1 = fl(s - b1)
    return s, b1, a1, fl(fl(a - a1) + fl(b - b1))


def two_sum_in_bf16():
    """TwoSum of 1.5 and 256; and its law for all pairs of a small format, subnormal numbers among them."""
    digits, lowest = 3, -2
    floats = sorted({Fraction(m) * Fraction(2) ** e for e in range(lowest, lowest + 6) for m in range(-7, 8)})
    for a, b in itertools.product(floats, floats):
        s, _, _, t = two_sum(a, b, lambda x: nearest(x, digits, lowest))
        assert s + t == a + b and nearest(t, digits, lowest) == t
    keys = two_sum(Fraction(3, 2), Fraction(256), bf16)
    assert keys[0] + keys[3] == Fraction(515, 2)
    return [float(key) for key in keys]


def kahan_misses():
    """1, 1e30, 1, -1e30 in fp32: running, by Kahan, and with TwoSum."""
    def running(terms):
        s = 0.0
        for x in terms:
            s = fp32(s + x)
        return s

    def kahan(terms):
        s = excess = 0.0
        for x in terms:
            y = fp32(x - excess)
            t = fp32(s + y)
            excess, s = fp32(fp32(t - s) - y), t
        return s

    def compensated(terms):
        s = error = 0.0
        for x in terms:
            s, _, _, lost = two_sum(s, x, fp32)
            error = fp32(error + lost)
        return fp32(s + error)

    gentle = [fp32(1 / k) for k in range(1, 400)]
    exact = fp32(math.fsum(gentle))
    assert kahan(gentle) == compensated(gentle) == exact != running(gentle)
    terms = [1.0, fp32(1e30), 1.0, -fp32(1e30)]
    return [running(terms), kahan(terms), compensated(terms)]


def variance():
    """Of 30000, 30001, 30002 in fp32: mean of squares less square of mean, and mean of squared differences."""
    values = [30000.0, 30001.0, 30002.0]
    total = squares = differences = 0.0
    for v in values:
        total, squares = fp32(total + v), fp32(squares + fp32(v * v))
    mean = fp32(total / 3)
    assert mean == 30001
    for v in values:
        d = fp32(v - mean)
        assert d == v - mean  # Sterbenz
        differences = fp32(differences + fp32(d * d))
    first, second = fp32(fp32(squares / 3) - fp32(mean * mean)), fp32(differences / 3)
    assert first < 0 and abs(second - 2 / 3) < 2**-24
    return [first, second]


def condition():
    terms = [1000.0, 0.5, -1000.25]
    kappa = sum(map(abs, terms)) / abs(sum(terms))
    # The sum's relative error when each term is off by the same small part, in the worst direction.
    worst = max(abs(sum(x * (1 + sign * 1e-9) for x, sign in zip(terms, signs)) / sum(terms) - 1)
                for signs in itertools.product((-1, 1), repeat=3))
    assert math.isclose(worst, kappa * 1e-9, rel_tol=1e-3)
    return [kappa, math.log10(kappa)]


def product_loss():
    """x x - fl(x x) for x = 1 + 2^-12, rounded once."""
    x = 1 + Fraction(1, 2**12)
    q = nearest(x * x, 24, -149)
    loss = nearest(x * x - q, 24, -149)
    assert loss == x * x - q != 0 and nearest(nearest(x * x, 24, -149) - q, 24, -149) == 0
    return float(loss)


def chains_to_fill():
    """Cycles that a step waits for the one before, over cycles that it occupies two adders; from the graph of a step."""
    latency, adders = 3, 2
    # A name with ' is this step's value, without it the last step's.
    kahan = [("y", ["excess"]), ("t", ["sum", "y'"]), ("d", ["t'", "sum"]), ("excess", ["d'", "y'"]), ("sum", ["t'"])]
    both = [("s", ["sum"]), ("part", ["s'", "sum"]), ("r", ["s'", "part'"]), ("a", ["sum", "r'"]), ("b", ["part'"]),
            ("lost", ["a'", "b'"]), ("error", ["error", "lost'"]), ("sum", ["s'"])]

    def waits(step, names, count=64):
        ready, finish = dict.fromkeys(names, 0), []
        for _ in range(count):
            new = {}
            for name, needs in step:
                at = max([new[n[:-1]] if n.endswith("'") else ready[n] for n in needs], default=0)
                new[name] = at + latency * (name != "sum")  # "sum" only renames
            ready = {name: new[name] for name in names}
            finish.append(max(ready.values()))
        return (finish[-1] - finish[count // 2 - 1]) / (count - count // 2)

    keys = []
    for step, names in ((kahan, ["sum", "excess"]), (both, ["sum", "error"])):
        occupied = sum(name != "sum" for name, _ in step) / adders
        keys.append(max(1, math.ceil(waits(step, names) / occupied)))
    assert waits(kahan, ["sum", "excess"]) == 12 and waits(both, ["sum", "error"]) == 3
    return keys


def by_lot():
    """Mean and deviation of a bf16 weight of 256 after a hundred additions of 1, by its distribution."""
    ways = {256: 1}  # number of equally likely histories, of two for each step
    for _ in range(100):
        after = {}
        for weight, count in ways.items():
            for to in (weight, weight + 2):  # weight + 1 is in the middle of the gap
                after[to] = after.get(to, 0) + count
        ways = after
    assert all(bf16(w) == w for w in ways) and bf16(256 + 1) == 256 and sum(ways.values()) == 2**100
    mean = Fraction(sum(w * c for w, c in ways.items()), 2**100)
    return [float(mean), math.sqrt(sum((w - mean) ** 2 * c for w, c in ways.items()) / 2**100)]
