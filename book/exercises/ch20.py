"""Keys of chapter 20's exercises, computed from first principles."""
import itertools
import math
import statistics


def below(n, k, p=0.5):
    """The probability of fewer than k successes in n trials."""
    return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k))


def rank(n, confidence=0.95):
    """The largest k such that the k-th smallest and the k-th largest of n ratios enclose the truth; 0 where there is none."""
    k = 0
    while 2 * below(n, k + 1) <= 1 - confidence:
        k += 1
    return k


def percentile(times, share):
    """The smallest time within which at least this share was answered."""
    ordered = sorted(times)
    return next(t for i, t in enumerate(ordered, 1) if i >= share * len(ordered) - 1e-9)


def harmonic_rate():
    return statistics.harmonic_mean([10, 40])


def means_of_ratios():
    ratios = [4, 1, 1 / 4]
    forward, backward = statistics.mean(ratios), statistics.mean(1 / r for r in ratios)
    assert math.isclose(forward, backward) and statistics.median(ratios) == 1
    return [forward, backward, statistics.geometric_mean(ratios)]


def pooled_percentile():
    a, b = [10] * 980 + [100] * 20, [20] * 1000
    assert percentile(a + a[-1:] + b, 0.99) == 100  # one more slow request, and the answer is another
    return [(percentile(a, 0.99) + percentile(b, 0.99)) / 2, percentile(a + b, 0.99)]


def to_see_the_tail():
    n = math.ceil(math.log(0.05) / math.log(0.99))
    assert 1 - 0.99**n >= 0.95 > 1 - 0.99 ** (n - 1)
    return n


def middle_share():
    assert [rank(n) for n in (20, 100, 400)] == [6, 40, 180]
    return [(n + 2 - 2 * rank(n)) / n for n in (20, 100, 400)]


def power():
    """Fewest rounds from which on the interval excludes 1 on the right side with at least 0.9."""
    keys = []
    for difference in (1, 1 / 3):
        right = statistics.NormalDist().cdf(difference)
        enough = [n for n in range(6, 260) if below(n, rank(n), 1 - right) >= 0.9]
        keys.append(next(n for n in enough if set(range(n, 260)) <= set(enough)))
    return keys


def neighbours():
    """How often 1 directly follows 0 in a rotation and in Williams' square of four."""
    rotation = [[(i + r) % 4 for i in range(4)] for r in range(4)]
    first = [0, 1, 3, 2]
    square = [[(e + r) % 4 for e in first] for r in range(4)]
    follows = lambda rounds, a, b: sum(pair == (a, b) for order in rounds for pair in zip(order, order[1:]))
    assert all(sorted(column) == [0, 1, 2, 3] for column in zip(*square))
    assert all(follows(square, a, b) == 1 for a, b in itertools.permutations(range(4), 2))
    for n in (2, 6, 8, 10):  # the law, for other sizes
        order = [(i + 1) // 2 if i % 2 else (n - i // 2) % n for i in range(n)]
        steps = [(b - a) % n for a, b in zip(order, order[1:])]
        assert sorted(order) == list(range(n)) and sorted(steps) == list(range(1, n))
    return [follows(rotation, 0, 1), follows(square, 0, 1)]


def effective_rounds():
    n, r = 400, 0.6
    v = 1 + 2 * sum((1 - lag / n) * r**lag for lag in range(1, n))
    assert math.isclose(v, (1 + r) / (1 - r), rel_tol=0.01)
    return [v, n / v]


def two_modes():
    before, after = [290] * 45 + [522] * 55, [290] * 55 + [522] * 45
    return [f(before) / f(after) for f in (statistics.median, statistics.mean)]


def random_look():
    calls = next(k for k in range(1, 999) if 0.9**k <= 0.01)
    # By counting, for 20 calls of which 2 are wrong: without replacement it is less than the bound.
    escapes = math.comb(18, 7) / math.comb(20, 7)
    assert escapes < 0.9**7
    return [0.5**7, 0.9**7, calls]


def coordinated_omission():
    """99th percentiles in ms of two clients that ask every 10 ms of a server that stands still from 5000 to 6000 ms."""
    def answered(at):
        return max(at, 6000) + 1 if 5000 <= at < 6000 else at + 1

    open_loop = [answered(t) - t for t in range(0, 10000, 10)]
    closed, at = [], 0
    while at < 10000:
        done = answered(at)
        closed.append(done - at)
        at = max(at + 10, 10 * math.ceil(done / 10) if done > at + 10 else at + 10)
    assert len(open_loop) == 1000 and sum(t > 1 for t in open_loop) == 100 and sum(t > 1 for t in closed) == 1
    return [percentile(closed, 0.99), percentile(open_loop, 0.99)]


def largest_deviation(values):
    """D of a history: the largest deviation of a sum of first ranks, in units of its standard deviation."""
    n = len(values)
    ranks = [sorted(values).index(v) + 1 - (n + 1) / 2 for v in values]
    return max(abs(sum(ranks[:k])) / math.sqrt(k * (n - k) * (n + 1) / 12) for k in range(1, n))


def separated_history():
    def share(m):
        orders = list(itertools.permutations(range(2 * m)))
        observed = largest_deviation(orders[0])  # ascending: the first half lies below the second
        return sum(largest_deviation(order) >= observed - 1e-12 for order in orders) / len(orders)

    for m in (2, 3):
        # In ascending order the largest deviation is that of the middle, and only a separated history reaches it.
        assert math.isclose(share(m), 2 / math.comb(2 * m, m))
    return [share(3), next(m for m in range(1, 9) if 2 / math.comb(2 * m, m) <= 0.01)]


def floor_time():
    return 0.9 * 2**30 / 4.6e12 * 1e6


def pairing():
    return 2 / (2 * (1 - 0.96))
