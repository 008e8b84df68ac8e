"""Keys of chapter 21's exercises, computed from first principles: from stacks where there are stacks, and by search where a formula is asked for."""
import math
from collections import Counter

Z = 1.96
TICK = 0.004


def error(p, n):
    return Z * math.sqrt(p * (1 - p) / n)


def samples_for_a_tenth():
    n = next(n for n in range(1, 10**5) if error(0.1, n) <= 0.01)
    assert n == math.ceil(Z**2 * 0.1 * 0.9 / 0.01**2)
    return n


def time_for_samples():
    return [samples_for_a_tenth() * TICK, 100 * error(0.1, round(0.5 / TICK))]


def self_time(stacks):
    found = Counter()
    for stack, count in stacks.items():
        found[stack.split(";")[-1]] += count
    return found


def inclusive_time(stacks, once=True):
    found = Counter()
    for stack, count in stacks.items():
        for function in set(stack.split(";")) if once else stack.split(";"):
            found[function] += count
    return found


def folded():
    stacks = {"main;visit;visit;visit;hash": 40, "main;visit;visit": 30, "main;visit;hash": 10, "main;print": 20}
    inclusive = inclusive_time(stacks)
    assert sum(stacks.values()) == sum(self_time(stacks).values()) == inclusive["main"] == 100
    depth = sum(len(set(stack.split(";"))) * count for stack, count in stacks.items()) / 100
    assert math.isclose(sum(inclusive.values()), depth * 100)  # the law
    return [self_time(stacks)["visit"], inclusive["visit"], inclusive_time(stacks, once=False)["visit"], sum(inclusive.values())]


TRUE = {"main;load;parse": 20, "main;load;copy": 30, "main;send;copy": 50}
CALLS_OF_COPY = {"load": 900, "send": 100}
REASONS = {"the caller of a function without a frame was skipped":
           lambda stack: [(";".join([*stack.split(";")[:-2], "copy"]), 1)] if stack.endswith("copy") else [(stack, 1)],
           "time was shared out by the number of calls":
           lambda stack: [(f"main;{caller};copy", calls / sum(CALLS_OF_COPY.values())) for caller, calls in CALLS_OF_COPY.items()]
           if stack.endswith("copy") else [(stack, 1)],
           "too few samples": lambda stack: [(stack, 1)],  # neither moves a sample to another stack
           "the samples were taken between ticks": lambda stack: [(stack, 1)]}


def graph(reason):
    found = Counter()
    for stack, count in TRUE.items():
        for other, part in REASONS[reason](stack):
            found[other] += count * part
    return found


def reason_of(shown):
    fitting = [reason for reason in REASONS if graph(reason) == Counter(shown)]
    assert len(fitting) == 1 and self_time(shown) == self_time(TRUE)
    return fitting[0]


def first_wrong_graph():
    return reason_of({"main;load;parse": 20, "main;copy": 80})


def second_wrong_graph():
    return reason_of({"main;load;parse": 20, "main;load;copy": 72, "main;send;copy": 8})


def gprof_share():
    a, b = (4, 300_000), (996, 1000)
    times = [calls * length for calls, length in (a, b)]
    return [100 * times[0] / sum(times), 100 * a[0] / (a[0] + b[0])]


def in_step():
    p, n = 0.2, 400
    # Of a random start one of five gives 1 and four give 0.
    starts = [1, 0, 0, 0, 0]
    mean = sum(starts) / 5
    assert mean == p
    return [math.sqrt(p * (1 - p) / n), math.sqrt(sum((s - mean) ** 2 for s in starts) / 5)]


def probed_share():
    small, large, probe = (10**6, 20), (1000, 180_000), 46

    def share(extra):
        times = [calls * (ns + extra) for calls, ns in (small, large)]
        return 100 * times[0] / sum(times)
    calls = 100 * small[0] / (small[0] + large[0])
    assert math.isclose(share(1e12), calls, rel_tol=1e-3)  # it tends to the share of calls
    return [share(0), share(probe)]


def two_profiles():
    return [0.03 * 60, 0.2 * 9]


def never_seen():
    bounds = [100 * (1 - 0.05 ** (1 / n)) for n in (125, 3458)]
    for bound, n in zip(bounds, (125, 3458)):
        assert math.isclose((1 - bound / 100) ** n, 0.05) and 0.9 * 3 / n < bound / 100 < 3 / n
    return bounds


def tell_apart():
    p, q = 0.1, 0.09
    n = Z**2 * (p * (1 - p) + q * (1 - q)) / (p - q) ** 2
    assert math.isclose(Z * math.sqrt((p * (1 - p) + q * (1 - q)) / n), p - q)
    return n


def worth():
    p = 30 / 200
    return [1 / (1 - (p + sign * error(p, 200))) for sign in (-1, 1)]


def slow_instruction():
    """The one before that with most samples, around the loop."""
    loop = ["the load", "the multiplication", "the addition", "the increment", "the comparison", "the jump"]
    samples = [2, 88, 6, 0, 3, 1]
    assert sum(samples) == 100
    return loop[samples.index(max(samples)) - 1]
