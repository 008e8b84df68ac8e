"""Keys of chapter 5's exercises, computed from first principles."""
import functools
import itertools
import math
import struct


def single(x):
    """The float32 nearest to x."""
    return struct.unpack("f", struct.pack("f", x))[0]


def brackets(values, merge):
    """The results of all ways to bracket the values, without changing their order."""
    if len(values) == 1:
        return [values[0]]
    return [merge(left, right) for i in range(1, len(values))
            for left in brackets(values[:i], merge) for right in brackets(values[i:], merge)]


def chains_needed():
    """Chains that keep two units of latency 4 busy, found by simulating a core that starts an operation when it can."""
    def cycles(chains, steps, latency=4, units=2):
        ready, cycle, left = [0] * chains, 0, [steps] * chains
        while any(left):
            started = 0
            for c in range(chains):
                if left[c] and ready[c] <= cycle and started < units:
                    ready[c], left[c], started = cycle + latency, left[c] - 1, started + 1
            cycle += 1
        return cycle
    full = next(k for k in range(1, 33) if cycles(k, 60) == math.ceil(60 * k / 2))
    assert full == 4 * 2 and cycles(4, 60) > 60 * 4 / 2
    return full


def steps_of_sum():
    """Additions that wait for one another: 1,048,576 numbers in one chain, and in 64 chains with a tree at the end."""
    def depth(count, chains):
        longest = math.ceil(count / chains) - 1
        while chains > 1:
            longest, chains = longest + 1, math.ceil(chains / 2)
        return longest
    assert depth(8, 8) == 3 and depth(8, 1) == 7 and depth(8, 2) == 4
    return [depth(2**20, 1), depth(2**20, 64)]


def moments(values):
    mean = sum(values) / len(values)
    return len(values), mean, sum((v - mean) ** 2 for v in values)


def merge_moments(a, b):
    (n, x, s), (m, y, t) = a, b
    return n + m, (n * x + m * y) / (n + m), s + t + (y - x) ** 2 * n * m / (n + m)


def merged_moments():
    """(n, mean, M2) of two halves, merged; checked against the numbers themselves."""
    left, right = [0, 2], [4, 6]
    assert moments(left) == (2, 1, 2) and moments(right) == (2, 5, 2)
    merged = merge_moments(moments(left), moments(right))
    assert merged == moments(left + right)
    return list(merged)


def run_state(bits):
    best = max((len(list(group)) for bit, group in itertools.groupby(bits) if bit == "1"), default=0)
    prefix = len(bits) - len(bits.lstrip("1"))
    return len(bits), prefix, len(bits) - len(bits.rstrip("1")), best


def merge_runs(a, b):
    (n, prefix, suffix, best), (m, p, s, q) = a, b
    return (n + m, prefix + p if prefix == n else prefix, s + suffix if s == m else s, max(best, q, suffix + p))


def longest_run():
    """Longest run of ones of 011 | 110, from the two states alone; all strings of up to six bits are checked."""
    for n in range(2, 7):
        for bits in map("".join, itertools.product("01", repeat=n)):
            for i in range(1, n):
                assert merge_runs(run_state(bits[:i]), run_state(bits[i:])) == run_state(bits)
    return merge_runs(run_state("011"), run_state("110"))[3]


def merge_softmax(a, b):
    (m, d), (p, q) = a, b
    top = max(m, p)
    return (top, 0.0) if top == -math.inf else (top, d * math.exp(m - top) + q * math.exp(p - top))


def online_sums():
    """The sums d of a softmax after each of 1, 3, 2, 5."""
    states = list(itertools.accumulate(((float(x), 1.0) for x in (1, 3, 2, 5)), merge_softmax))
    for i, (m, d) in enumerate(states):
        seen = (1, 3, 2, 5)[: i + 1]
        assert m == max(seen) and math.isclose(d, sum(math.exp(x - m) for x in seen))
    for result in brackets([(float(x), 1.0) for x in (1, 3, 2, 5)], merge_softmax):
        assert math.isclose(result[1], states[-1][1])
    return [d for _, d in states]


def not_a_monoid():
    """The operation of the four that is not associative."""
    operations = {
        "composition of x → ax + b": (lambda f, g: (g[0] * f[0], g[0] * f[1] + g[1]), [(2, 3), (4, 5), (-1, 7)]),
        "the larger of two numbers": (max, [3, -2, 5]),
        "the mean of two numbers": (lambda a, b: (a + b) / 2, [1.0, 2.0, 6.0]),
        "joining two strings": (lambda a, b: a + b, ["ab", "", "c"]),
    }
    found = [name for name, (merge, values) in operations.items() if len(set(brackets(values, merge))) > 1]
    assert len(found) == 1
    return found[0]


def affine():
    """First x -> 2x + 3, then x -> 4x + 5, as one map ax + b."""
    first, then = (lambda x: 2 * x + 3), (lambda x: 4 * x + 5)
    b = then(first(0))
    a = then(first(1)) - b
    assert all(then(first(x)) == a * x + b for x in range(-5, 6))
    assert first(then(1)) != then(first(1))  # associative, not commutative
    return [a, b]


def sum_of_ones():
    """Where a chain of float32 additions of 1 stops growing."""
    s = 1.0
    while single(s + s) > s and single(s + 1) > s:
        s = single(s + s)  # powers of two on the way: adding ones one by one passes through each
    assert single(s + 1) == s and single(s / 2 + 1) > s / 2
    return s


def eight_chains_of_ones():
    """The same sum of 2^26 ones in eight chains, each of 2^23."""
    chain = 2**23
    assert single(single(chain - 1.0) + 1) == chain  # exact up to 2^24
    return functools.reduce(lambda a, b: single(a + b), [float(chain)] * 8)


def worst_gap():
    """Rows of the largest step, 950 tokens of prompt in pieces of at most 64 rows, 6 of which are decodes; and steps."""
    prompt, limit, decodes = 950, 64, 6
    pieces = limit - decodes
    return [decodes + pieces, math.ceil(prompt / pieces)]


def scanned(values, rounds):
    """The partial sums after rounds of additions; a round is a list of (to, from), all read before any is written."""
    state, count = list(values), 0
    for pairs in rounds:
        before = list(state)
        for to, source in pairs:
            state[to], count = before[source] + before[to], count + 1
    assert state == list(itertools.accumulate(values))
    return count, len(rounds)


def scan_additions():
    """Additions of three scans of 16 elements: one by one, by Hillis and Steele, and up and down a tree."""
    n = 16
    words = [chr(ord("a") + i) for i in range(n)]  # joining letters is associative and shows every mistake
    serial = [[(i, i - 1)] for i in range(1, n)]
    doubling = [[(i, i - s) for i in range(s, n)] for s in (1, 2, 4, 8)]
    up = [[(i, i - s) for i in range(2 * s - 1, n, 2 * s)] for s in (1, 2, 4, 8)]
    down = [[(i, i - s) for i in range(3 * s - 1, n, 2 * s)] for s in (4, 2, 1)]
    counts = [scanned(words, rounds) for rounds in (serial, doubling, up + down)]
    assert all(count >= 2 * n - 2 - depth for count, depth in counts)  # Snir's bound
    return [count for count, _ in counts]
