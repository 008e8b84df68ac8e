"""Keys of chapter 3's exercises, computed from first principles."""
import heapq
import itertools
import math


def span(times, needs):
    """The longest chain of steps; needs[v] are the steps that v waits for."""
    end = {}

    def of(v):
        if v not in end:
            end[v] = times[v] + max((of(u) for u in needs.get(v, ())), default=0)
        return end[v]

    return max(of(v) for v in times)


def greedy(times, needs, processors):
    """The end of a greedy schedule that begins, among steps that can begin, with the first in the order of `times`."""
    order = {v: i for i, v in enumerate(times)}
    followers = {v: [w for w in times if v in needs.get(w, ())] for v in times}
    missing = {v: len(needs.get(v, ())) for v in times}
    ready = [order[v] for v in times if missing[v] == 0]
    heapq.heapify(ready)
    names, running, now = list(times), [], 0
    while ready or running:
        while ready and len(running) < processors:
            v = names[heapq.heappop(ready)]
            heapq.heappush(running, (now + times[v], order[v]))
        now = running[0][0]
        while running and running[0][0] == now:
            for w in followers[names[heapq.heappop(running)[1]]]:
                missing[w] -= 1
                if missing[w] == 0:
                    heapq.heappush(ready, order[w])
    return now


def bounds(times, needs, processors):
    """Lower and upper bound on the time of any greedy schedule; every one that is tried here obeys them."""
    work, longest = sum(times.values()), span(times, needs)
    low, high = max(work / processors, longest), work / processors + longest * (1 - 1 / processors)
    assert low - 1e-9 <= greedy(times, needs, processors) <= high + 1e-9
    return low, high


def amdahl():
    """Speed-up on 64 cores if 95 % of the work divides evenly, and what no number of cores exceeds."""
    serial = 0.05

    def speed_up(cores):
        return 1 / (serial + (1 - serial) / cores)

    # The same by composition: one step of 64 in a row with 1216 of 1 that stand beside each other (5 % and 95 %).
    times = {"serial": 64} | {i: 1 for i in range(1216)}
    needs = {i: ("serial",) for i in range(1216)}
    assert sum(times.values()) / greedy(times, needs, 64) == 1280 / (64 + 1216 / 64)
    assert math.isclose(1280 / 83, speed_up(64))
    assert speed_up(10**9) < 1 / serial
    return [speed_up(64), 1 / serial]


def composed():
    """Work, span and greatest speed-up of A, then B beside (C, then D) beside E, then F."""
    times = {"A": 2, "B": 4, "C": 1, "D": 6, "E": 3, "F": 2}
    needs = {"B": "A", "C": "A", "E": "A", "D": "C", "F": "BDE"}
    work, longest = sum(times.values()), span(times, needs)
    for processors in (1, 2, 3, 4):
        bounds(times, needs, processors)
    assert greedy(times, needs, 1) == work and greedy(times, needs, 2) == longest
    return [work, longest, work / longest]


def tree(n):
    """The additions of a tree over n numbers, n a power of two, level by level."""
    times, needs, level, number = {}, {}, [None] * n, 0
    while len(level) > 1:
        above = []
        for left, right in zip(level[::2], level[1::2]):
            times[number] = 1
            needs[number] = tuple(v for v in (left, right) if v is not None)
            above.append(number)
            number += 1
        level = above
    return times, needs


def tree_sum():
    """A sum of 1024 numbers on 32 processors: W / p, W / p + S, and a greedy schedule level by level."""
    times, needs = tree(1024)
    work, longest = sum(times.values()), span(times, needs)
    assert (work, longest) == (1023, 10)
    bounds(times, needs, 32)
    # Chunks first: 31 additions in each of 32 chunks, then a tree of 5 levels.
    assert greedy(times, needs, 32) == 31 + 5
    return [work / 32, work / 32 + longest, greedy(times, needs, 32)]


def anomaly():
    """Graham's nine steps on three and on four processors, begun in the order of their numbers."""
    times = dict(zip(range(1, 10), (3, 2, 2, 2, 4, 4, 4, 4, 9)))
    needs = {9: (1,), 5: (4,), 6: (4,), 7: (4,), 8: (4,)}
    for processors in (1, 2, 3, 4, 5):
        bounds(times, needs, processors)
    assert span(times, needs) == 12
    return [greedy(times, needs, 3), greedy(times, needs, 4)]


def uneven_split():
    """Time of equal numbers of items over that of equal work, where costs rise evenly from 1 to 4."""
    def ratio(threads):
        edges = [k / threads for k in range(threads + 1)]
        shares = [(b - a) + 1.5 * (b * b - a * a) for a, b in zip(edges, edges[1:])]  # the integral of 1 + 3 x
        assert math.isclose(sum(shares), 2.5)
        return max(shares) / (sum(shares) / threads)

    assert math.isclose(ratio(2), (4 - 3 / 4) / 2.5)
    return [ratio(2), ratio(8), 4 / 2.5]


def batch():
    """The batch that minimises (n w + n c / b) / p + b w."""
    n, fetch, item, processors = 10**6, 50e-9, 1e-6, 8
    best = min(range(1, 10_000), key=lambda b: (n * item + n * fetch / b) / processors + b * item)
    assert abs(best - math.sqrt(n * fetch / (processors * item))) < 1
    return best


def break_even():
    """Elements from which 2 and 8 cores gain anything, and from which 2 cores have a speed-up of 1.8."""
    start, element = 20e-6, 0.5e-9

    def speed_up(n, cores):
        return n * element / (n * element / cores + start)

    two, eight = 2 * start / element, 8 / 7 * start / element
    most = 1.8 * start / element / (1 - 1.8 / 2)
    assert math.isclose(speed_up(two, 2), 1) and math.isclose(speed_up(eight, 8), 1) and math.isclose(speed_up(most, 2), 1.8)
    return [two, eight, most]


def extrapolated():
    """Speed-ups on 64 cores from 1.90 and 1.98 on two, if all that is lost were a serial share."""
    def on_64(on_two):
        serial = 2 / on_two - 1
        assert math.isclose(1 / (serial + (1 - serial) / 2), on_two)
        return 1 / (serial + (1 - serial) / 64)

    assert math.isclose(on_64(2.0), 64)
    return [on_64(1.90), on_64(1.98)]


def counters():
    """Three counters of 8 bytes for each of 8 threads: lines in all, threads that write the first line, lines when padded."""
    line, own, threads = 64, 3 * 8, 8

    def lines(stride):
        return [{byte // line for byte in range(t * stride, t * stride + own)} for t in range(threads)]

    packed, padded = lines(own), lines(line)
    assert all(not a & b for a, b in itertools.combinations(padded, 2))
    return [len(set().union(*packed)), sum(0 in touched for touched in packed), len(set().union(*padded))]


def parallel_scan():
    """Additions of the scan by doubling over 1024 numbers, and the fewest processors with which it can beat a chain."""
    n = 1024
    values, additions, steps = list(range(1, n + 1)), 0, []
    expected, distance = list(itertools.accumulate(values)), 1
    while distance < n:
        values = [v + values[i - distance] if i >= distance else v for i, v in enumerate(values)]
        steps.append(n - distance)
        additions, distance = additions + n - distance, 2 * distance
    assert values == expected and len(steps) == 10 and additions == sum(steps)

    def level_by_level(p):
        return sum(math.ceil(step / p) for step in steps)

    fewest = next(p for p in itertools.count(1) if additions / p < n - 1)  # below it, W / p alone takes longer
    assert level_by_level(fewest) < n - 1 <= level_by_level(fewest - 1)
    return [additions, fewest]


def what_helps():
    """The change that lowers both bounds most where the span is most of the time."""
    work, longest, processors = 1e9, 1e8, 64

    def upper(w, s, p):
        return w / p + s * (1 - 1 / p)

    changes = {"twice the processors": (work, longest, 2 * processors), "half the work, same span": (work / 2, longest, processors),
               "half the span, same work": (work, longest / 2, processors)}
    best = min(changes, key=lambda name: upper(*changes[name]))
    assert best == min(changes, key=lambda name: max(changes[name][0] / changes[name][2], changes[name][1]))
    return best


def pipeline():
    """Work over stages, span, Brent's bound, and the end of a pipeline of 8 stages with 32 microbatches, forward 1 and backward 2."""
    stages, pieces, last = 8, 32, 7
    times = {("F", s, k): 1 for k in range(pieces) for s in range(stages)} | {("B", s, k): 2 for k in range(pieces) for s in range(stages)}
    needs = {("F", s, k): [("F", s - 1, k)] for _, s, k in times if s > 0}
    needs |= {("B", s, k): [("B", s + 1, k)] if s < last else [("F", last, k)] for _, s, k in times}
    work, longest = sum(times.values()), span(times, needs)
    free, end = [0] * stages, {}
    for kind in "FB":  # each stage: all pieces forward in their order, then all backward
        for k in range(pieces):
            for s in range(stages) if kind == "F" else reversed(range(stages)):
                step = kind, s, k
                end[step] = max([free[s]] + [end[u] for u in needs.get(step, ())]) + times[step]
                free[s] = end[step]
    bound = work / stages + longest * (1 - 1 / stages)
    assert max(end.values()) == bound == (pieces + stages - 1) * 3
    return [work / stages, longest, max(end.values())]
