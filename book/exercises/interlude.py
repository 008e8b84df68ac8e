"""Keys of the interlude's exercises, computed from first principles."""
import itertools
import math
import random


def below(n, k):
    """The probability of fewer than k heads of n fair coins."""
    return sum(math.comb(n, i) for i in range(k)) / 2**n


def rank(n, confidence=0.95):
    """The largest k such that the k-th smallest and the k-th largest of n quotients enclose the truth; 0 where there is none."""
    k = max(k for k in range(n // 2 + 1) if k == 0 or 2 * below(n, k) <= 1 - confidence)
    assert 2 * below(n, k + 1) > 1 - confidence
    return k


def ranks():
    """Of 20 quotients in ascending order, the places that an interval of 95 % takes, counted from 1."""
    n = 20
    k = rank(n)
    return [k, n + 1 - k]


def fewest_rounds():
    """How often in percent the range of 6 quotients misses, and the fewest for which a range has 99 %."""
    # By counting: all 64 patterns of coins, of which only all heads and all tails miss.
    patterns = list(itertools.product((0, 1), repeat=6))
    missed = sum(len(set(pattern)) == 1 for pattern in patterns) / len(patterns)
    assert missed == 2 * below(6, 1)
    assert rank(5) == 0 and rank(6) == 1
    return [100 * missed, next(n for n in range(1, 99) if 2 * below(n, 1) <= 0.01)]


def drift():
    """By how many percent B seems slower when A = B and run i of 60 takes 1 + 0.04 i / 59."""
    times = [1 + 0.04 * i / 59 for i in range(60)]
    mean = lambda x: sum(x) / len(x)
    one_after_the_other = mean(times[30:]) / mean(times[:30])
    alternating = mean(times[1::2]) / mean(times[::2])
    assert 1.019 < one_after_the_other < 1.021 and alternating < 1.001
    return [100 * (one_after_the_other - 1), 100 * (alternating - 1)]


def what_it_claims():
    """Frequencies of what might be meant by 95 %, over simulated experiments whose truth is known."""
    draw, n, truth = random.Random(1), 40, math.exp(0)
    k = rank(n)
    covered = inside = next_median = 0
    experiments = 1500

    def quotients():
        return sorted(draw.lognormvariate(0, 0.05) for _ in range(n))

    for _ in range(experiments):
        x, again = quotients(), quotients()
        low, high = x[k - 1], x[n - k]
        covered += low <= truth <= high
        inside += sum(low <= q <= high for q in x) / n
        next_median += low <= (again[n // 2 - 1] + again[n // 2]) / 2 <= high
    said = {"intervals made in this way contain the true ratio in at least 95 % of experiments": covered / experiments,
            "95 % of the rounds lie in the interval": inside / experiments,
            "in 95 % of repetitions the new median will lie in this interval": next_median / experiments}
    true = [text for text, share in said.items() if 0.94 <= share <= 0.98]
    assert len(true) == 1, said
    return true[0]


def peeking():
    """Percent of experiments with equal variants in which the sign test at 5 % calls a difference after 10, 20, ..., 100 rounds."""
    heads, called = {0: 1.0}, 0.0
    for n in range(1, 101):
        step = {}
        for h, p in heads.items():
            step[h] = step.get(h, 0) + p / 2
            step[h + 1] = step.get(h + 1, 0) + p / 2
        if n % 10 == 0:
            k = rank(n)
            stopped = {h: p for h, p in step.items() if h < k or n - h < k}
            called += sum(stopped.values())
            step = {h: p for h, p in step.items() if h not in stopped}
        heads = step
    assert math.isclose(called + sum(heads.values()), 1)
    assert called > 2 * below(100, rank(100))  # a single look errs less
    return 100 * called


def family():
    """Chance in percent that one of 10 independent intervals of 95 % misses, and the confidence that Bonferroni asks of each."""
    return [100 * (1 - 0.95**10), 100 * (1 - 0.05 / 10)]


def said_three_ways():
    """A run of 12 ms becomes one of 8 ms: percent less time, percent more runs a second, ratio of times."""
    before, after = 12, 8
    return [100 * (1 - after / before), 100 * ((1 / after) / (1 / before) - 1), before / after]


def minima():
    """The mean fastest of 9 and of 99 runs, each uniform between 1 and 1.5 ms; by the integral of P(all are later)."""
    def expected(n, steps=20000):
        late = lambda t: (1 - t / 0.5) ** n
        return 1 + sum(late((i + 0.5) * 0.5 / steps) for i in range(steps)) * 0.5 / steps

    few, many = expected(9), expected(99)
    assert math.isclose(few, 1 + 0.5 / 10, rel_tol=1e-6) and math.isclose(many, 1 + 0.5 / 100, rel_tol=1e-6)
    return [few, many]


def verdict(low, high, margin=0.02):
    if low > 1 + margin:
        return "FASTER"
    if high < 1 / (1 + margin):
        return "SLOWER"
    return "SAME" if low >= 1 / (1 + margin) and high <= 1 + margin else "INCONCLUSIVE"


def small_and_sure():
    assert verdict(0.9, 1.2) == "INCONCLUSIVE" and verdict(1.1, 1.2) == "FASTER" and verdict(0.8, 0.9) == "SLOWER"
    return verdict(1.002, 1.009)
