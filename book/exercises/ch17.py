"""Keys of chapter 17's exercises, computed from first principles."""
import itertools
import math
import random
import struct
from fractions import Fraction


def ring(ranks=4, size=1):
    """GiB that a rank sends in a ring, and steps; by passing parts around until all have the sums."""
    numbers = [[10**rank * (part + 1) for part in range(ranks)] for rank in range(ranks)]
    total = [sum(column) for column in zip(*numbers)]
    now, steps = [list(row) for row in numbers], 0
    for adding, step in [(True, s) for s in range(ranks - 1)] + [(False, s) for s in range(ranks - 1)]:
        sent = []
        for rank in range(ranks):
            part = (rank - step + (0 if adding else 1)) % ranks
            sent.append((rank, (rank + 1) % ranks, part, now[rank][part]))
        for _, to, part, value in sent:
            now[to][part] = now[to][part] + value if adding else value
        steps += 1
    assert all(row == total for row in now)
    return [steps * size / ranks, steps]


def bandwidths(ranks=8, size=2e9, seconds=0.01):
    """GB/s: bytes of the vector a second, and bytes that a rank sends a second."""
    return [size / seconds / 1e9, ring(ranks, size)[0] / seconds / 1e9]


def product(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def transposed(a):
    return [list(row) for row in zip(*a)]


def step(x, w, dy):
    """The three products of a training step."""
    return {"the outputs": product(x, w), "the gradient of the inputs": product(dy, transposed(w)),
            "the gradient of the weights": product(transposed(x), dy)}


def cut_by_outputs():
    """Which product of a rank has the shape of the whole and other values, if it has some of the outputs; the three cuts have three answers."""
    draw = random.Random(17)
    t, k, n, half = 4, 6, 8, {"t": 2, "k": 3, "n": 4}
    x, w, dy = ([[draw.randint(-9, 9) for _ in range(columns)] for _ in range(rows)] for rows, columns in ((t, k), (k, n), (t, n)))
    whole = step(x, w, dy)

    def summed(index):
        def part(a, first, second):
            a = a[: half[index]] if first == index else a
            return [row[: half[index]] for row in a] if second == index else a
        mine = step(part(x, "t", "k"), part(w, "k", "n"), part(dy, "t", "n"))
        wrong = [name for name, value in mine.items() if len(value) == len(whole[name]) and len(value[0]) == len(whole[name][0])]
        assert len(wrong) == 1 and mine[wrong[0]] != whole[wrong[0]]
        for name in set(mine) - set(wrong):  # the others are parts of the whole
            assert all(row == of[: len(row)] for row, of in zip(mine[name], whole[name]))
        return wrong[0]
    assert [summed(index) for index in "tk"] == ["the gradient of the weights", "the outputs"]
    return summed("n")


def three_cuts(n=1024, ranks=8):
    """Millions of numbers that a rank receives for C = A B: the contracted index cut into eight, all three into halves, and the bound."""
    def received(i, j, k):
        """Blocks of n/i x n/j x n/k steps; of each matrix a rank has one of `ranks` equal parts of those that it works on or adds up."""
        a, b, c = n // i * (n // k), n // k * (n // j), n // i * (n // j)
        own = n * n // ranks
        # Operands: what it needs and has not. Sums: parts of its own eighth from each other rank that adds to the same block.
        return (a - own) + (b - own) + (k - 1) * (c // k)
    assert received(1, 1, ranks) == (ranks - 1) * n * n // ranks
    bound = 3 * (n**3 / ranks) ** (2 / 3) - 3 * n * n / ranks
    best = min(received(i, j, k) for i, j, k in itertools.product((1, 2, 4, 8), repeat=3) if i * j * k == ranks)
    assert best == received(2, 2, 2) and math.isclose(best, bound)
    return [received(1, 1, ranks) / 1e6, best / 1e6, bound / 1e6]


def fp32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def fp32_sum(numbers):
    total = fp32(numbers[0])
    for x in numbers[1:]:
        total = fp32(total + fp32(x))
    return total


def order_of_ranks():
    """The sum of three ranks' numbers in fp32 from rank 0 on and from rank 1 on, and in double."""
    x = [1.0, 2.0**24, -(2.0**24)]
    assert fp32_sum(x[:2]) == fp32_sum(x[1::-1])  # two ranks: rounded addition commutes
    return [fp32_sum(x), fp32_sum([x[1], x[2], x[0]]), math.fsum(x)]


def all_summed(buckets, backward, link, start):
    """When the sums of all buckets are ready; by following the pass and the link."""
    free = 0.0
    for j in range(1, buckets + 1):
        free = max(free, j * backward / buckets) + start + link / buckets
    return free


def buckets(backward=40, link=60, start=0.1):
    """The best number of buckets by trying all up to 1000, its time, and the times of one and of 400."""
    def time(k):
        return all_summed(k, backward, link, start)
    for k in (1, 3, 20, 400, 900):
        c = start + link / k
        assert math.isclose(time(k), backward / k + c + (k - 1) * max(backward / k, c))
    best = min(range(1, 1001), key=time)
    return [best, time(best), time(1), time(400)]


def rows_that_hide(peak=400e12, bandwidth=25e9, ranks=16, rows=4e6, width=4096):
    """Rows a rank at which two products take as long as the sum of the gradients; the most ranks for a step of so many rows."""
    def ratio(p, rows_of_rank):
        products, gradients = 2 * 2 * width * width * rows_of_rank, 2 * width * width
        return (products / peak) / (2 * (p - 1) / p * gradients / bandwidth)
    needed = next(r for r in range(1000, 100_000, 1000) if ratio(ranks, r) >= 1 - 1e-12)
    most = max(p for p in range(2, 1000) if ratio(p, rows / p) >= 1 - 1e-12)
    return [needed, most]


def zero_stages(weights=7e9, ranks=8):
    """GB a rank: of what it holds, each part whole or cut."""
    parts = {"weights": 2, "gradients": 2, "state": 12}
    cut = [(), ("state",), ("state", "gradients"), ("state", "gradients", "weights")]
    return [sum(size / (ranks if name in stage else 1) for name, size in parts.items()) * weights / 1e9 for stage in cut]


def rows_or_columns(d=4096):
    """Rows at which the gradients of a layer are as many as the activations that tensor parallelism sums."""
    return next(t for t in range(1, 100_000) if 4 * t * d >= 12 * d * d)


def pipeline(stages, microbatches, forward=1, backward=2, weight=0):
    """1F1B pass by pass; with weight, ZB-H1: stage s puts off s gradients of weights. Its time and the work of a stage."""
    orders = []
    for s in range(stages):
        ahead = min(microbatches, stages - 1 - s)
        order = [("F", i) for i in range(ahead)]
        for i in range(microbatches):
            order += [("F", ahead + i)] * (ahead + i < microbatches) + [("B", i)]
            if weight and i >= s:
                order.append(("W", i - s))
        if weight:
            order += [("W", i) for i in range(max(microbatches - s, 0), microbatches)]
        orders.append(order)
    took = {"F": forward, "B": backward - weight, "W": weight}
    done, free, at = {}, [0] * stages, [0] * stages
    while any(at[s] < len(orders[s]) for s in range(stages)):
        moved = False
        for s in range(stages):
            while at[s] < len(orders[s]):
                kind, i = orders[s][at[s]]
                wanted = [("F", s - 1, i)] if kind == "F" and s > 0 else []
                if kind == "B":
                    wanted = [("F", s, i)] + [("B", s + 1, i)] * (s + 1 < stages)
                if kind == "W":
                    wanted = [("B", s, i)]
                if any(w not in done for w in wanted):
                    break
                free[s] = done[kind, s, i] = max([free[s], *(done[w] for w in wanted)]) + took[kind]
                at[s] += 1
                moved = True
        assert moved, "passes wait in a circle"
    return max(free), microbatches * (forward + backward)


def bubbles():
    """Shares of the stages' time in which they wait, in 1F1B."""
    def share(stages, microbatches):
        time, work = pipeline(stages, microbatches)
        return 1 - work / time
    assert [pipeline(4, 8)[0], pipeline(8, 32)[0]] == [33, 117]
    return [share(4, 8), share(8, 32)]


def waiting_times(p=8, f=1, b=2, w=1, both=3):
    """Published formulas; the first two also pass by pass, for any number of microbatches that fills the pipeline."""
    formulas = [(p - 1) * (f + b), (p - 1) * (f + b - 2 * w), (p // 2 - 1) * (both + b - 3 * w)]
    for m in (8, 20, 32):
        runs = [pipeline(p, m, f, b), pipeline(p, m, f, b, w)]
        assert [time - work for time, work in runs] == formulas[:2]
    return formulas


def copies_of_a_token(experts=256, ranks=8, chosen=8):
    """Copies sent to other ranks: for each expert there, and for each rank that has any."""
    each = experts // ranks
    none = Fraction(math.comb(experts - each, chosen), math.comb(experts, chosen))
    # The same on a case that can be counted: 8 experts on 4 ranks, 3 chosen.
    sets = list(itertools.combinations(range(8), 3))
    counted = Fraction(sum(len({e // 2 for e in one} - {0}) for one in sets), len(sets))
    assert counted == 3 * (1 - Fraction(math.comb(6, 3), math.comb(8, 3)))
    return [chosen * (ranks - 1) / ranks, float((ranks - 1) * (1 - none))]


def causal_pieces(ranks=4, piece=32):
    """Percent of the scores on the busiest rank, for pieces in order and for an early and a late one each."""
    tokens = 2 * ranks * piece

    def busiest(rank_of_piece):
        scores = [0] * ranks
        for i in range(tokens):
            scores[rank_of_piece(i // piece)] += i + 0.5  # half of its own score: as for a text without end
        return 100 * max(scores) / sum(scores)
    return [busiest(lambda c: c // 2), busiest(lambda c: min(c, 2 * ranks - 1 - c))]


def checkpoint(seconds=60, between=3 * 3600):
    """Minutes of work between checkpoints, and percent of the time that is lost, by trying every tenth of a second."""
    def lost(tau):
        return seconds / tau + tau / (2 * between)
    best = min((i / 10 for i in range(100, 100_000)), key=lost)
    return [best / 60, 100 * lost(best)]


def mean_of_means():
    """Of two ranks' losses, and of all their tokens'."""
    ranks = [[4.0] * 10, [2.0] * 30]
    means = [sum(losses) / len(losses) for losses in ranks]
    return [sum(means) / len(means), sum(map(sum, ranks)) / sum(map(len, ranks))]
