"""Keys of chapter 23's exercises, computed from first principles."""
import functools
import itertools
import math


def compositions():
    """x -> 2x + 3 and x -> 4x + 5 in both orders, from two values of the composed map."""
    f, g = (lambda x: 2 * x + 3), (lambda x: 4 * x + 5)
    keys = []
    for first, then in ((f, g), (g, f)):
        b = then(first(0))
        keys += [then(first(1)) - b, b]
    return keys


def is_monoid(elements, operation, identity):
    return (all(operation(operation(a, b), c) == operation(a, operation(b, c)) for a, b, c in itertools.product(elements, repeat=3))
            and all(operation(a, identity) == a == operation(identity, a) for a in elements))


def monoids():
    """Which of the five structures are monoids, by trial of all triples of some elements."""
    maps = list(itertools.product(range(3), repeat=3))  # of three states to themselves, as tables
    structures = {
        "a": ([0, 1, 2, 3, 4, 6, 12, 35], math.gcd, 0),
        "b": ([0, 1, 2, 7, -3], lambda x, y: (x + y) / 2, 0),
        "c": (maps, lambda f, g: tuple(g[f[s]] for s in range(3)), (0, 1, 2)),
        "d": (range(-4, 5), lambda x, y: max(-4, min(4, x + y)), 0),
        "e": (["", "a", "b", "ab", "ba"], lambda s, t: s + t, ""),
    }
    found = [name for name, structure in structures.items() if is_monoid(*structure)]
    return ", ".join(found[:-1]) + " and " + found[-1]


def product(a, b, add, times):
    return [[functools.reduce(add, (times(x, row[j]) for x, row in zip(left, b))) for j in range(len(b[0]))] for left in a]


def small_products():
    a, b = [[1, 4], [2, 0]], [[3, 5], [0, 2]]
    shortest = product(a, b, min, lambda x, y: x + y)
    assert shortest == [[min(a[i][k] + b[k][j] for k in range(2)) for j in range(2)] for i in range(2)]
    return [number for row in shortest for number in row]


def all_pairs():
    """Products for the distances in a graph of 1024 vertices: one edge after the other, and by squaring."""
    def products_by_squaring(edges):
        count, reached = 0, 1
        while reached < edges:
            count, reached = count + 1, 2 * reached
        return count
    n = 1024
    # On a path of n vertices the last distance needs n - 1 edges, and squaring finds it; checked for a small one.
    far, size = math.inf, 9
    power = [[0 if i == j else 1 if j == i + 1 else far for j in range(size)] for i in range(size)]
    for _ in range(products_by_squaring(size - 1)):
        power = product(power, power, min, lambda x, y: x + y)
    assert power[0][size - 1] == size - 1
    return [n - 2, products_by_squaring(n - 1)]


def leave_the_window():
    """Of which operation one operand can be found from the result and the other."""
    elements = range(16)
    operations = {"maximum": max, "bitwise or": lambda a, b: a | b, "exclusive or": lambda a, b: a ^ b, "greatest common divisor": math.gcd}
    found = [name for name, operation in operations.items()
             if all(len({operation(a, x) for x in elements}) == len(elements) for a in elements)]
    assert len(found) == 1
    return found[0]


def window_minima():
    """Minima taken for each window of 64 numbers: by the definition, and from what ends and what begins in blocks of 64."""
    w, blocks, taken = 64, 5, 0
    numbers = [(7919 * i * i + 104729 * i) % 10007 for i in range(w * (blocks + 1))]

    def least(a, b):
        nonlocal taken
        taken += 1
        return min(a, b)

    begins, ends = [], []  # the least from the block's first number up to here, and from here up to its last
    for block in range(blocks + 1):
        part = numbers[w * block: w * (block + 1)]
        begins += itertools.accumulate(part, least)
        ends += reversed(list(itertools.accumulate(reversed(part), least)))
    walks, taken = taken, 0
    windows = [ends[i] if i % w == 0 else least(ends[i], begins[i + w - 1]) for i in range(w * blocks)]
    assert windows == [min(numbers[i: i + w]) for i in range(w * blocks)]
    return [w - 1, walks / len(numbers) + taken / len(windows)]


def scan_gain(p, r):
    """Time of the loop over that of p workers: the first takes steps along its part while the others compose theirs."""
    best = math.inf
    n = 10_000
    for s in range(1, n // p):  # the length of each part but the first
        first = n - p * s
        # p - 1 parts of length s are composed beside the first; then they and the last are walked.
        best = min(best, max(first, r * s) + s)
    return n / best


def scan_gains():
    assert math.isclose(scan_gain(2, 1), 1.5, rel_tol=1e-3)  # Snir's bound
    keys = [(p + r) / (1 + r) for p, r in ((2, 2), (16, 2), (16, 17))]
    assert all(math.isclose(key, scan_gain(p, r), rel_tol=5e-3) for key, (p, r) in zip(keys, ((2, 2), (16, 2), (16, 17))))
    return keys


def description():
    """Numbers that describe a step x -> A x + b of 16 numbers, and multiplications of one composition: full A and diagonal A."""
    d, made = 16, 0

    def times(x, y):
        nonlocal made
        made += 1
        return x * y

    a = [[(3 * i + 5 * j) % 7 for j in range(d)] for i in range(d)]
    b = [[i % 5] for i in range(d)]
    product(a, a, lambda x, y: x + y, times)
    product(a, b, lambda x, y: x + y, times)
    full, made = made, 0
    for i in range(d):  # of a diagonal only one product of a row is not zero
        times(a[i][i], a[i][i])
        times(a[i][i], b[i][0])
    return [d * d + d, full, 2 * d, made]


def queue():
    """Requests that come at 3 and take 2, come at 4 and take 5: x -> max(x + s, t), from two values."""
    def ends(x):
        for come, take in ((3, 2), (4, 5)):
            x = max(x, come) + take
        return x
    t = ends(-math.inf)
    s = ends(1000) - 1000
    assert all(ends(x) == max(x + s, t) for x in range(-20, 20))
    return [s, t]


def longest_first(loads, ranks, room=None):
    bins = [[] for _ in range(ranks)]
    for load in sorted(loads, reverse=True):
        free = [b for b in bins if room is None or len(b) < room]
        min(free, key=sum).append(load)
    return max(map(sum, bins))


def best(loads, ranks, room=None):
    fullest = math.inf
    for where in itertools.product(range(ranks), repeat=len(loads)):
        bins = [[load for load, at in zip(loads, where) if at == r] for r in range(ranks)]
        if room is None or all(len(b) <= room for b in bins):
            fullest = min(fullest, max(map(sum, bins)))
    return fullest


def greedy():
    loads = [3, 3, 2, 2, 2]
    keys = [longest_first(loads, 2), best(loads, 2)]
    assert keys[0] <= sum(loads) / 2 + (1 - 1 / 2) * 2  # the law, with the last load that the fullest rank took
    return keys


def greedy_with_room():
    """Six experts on two ranks with room for three each, and the bound that holds without that."""
    loads = [10, 4, 4, 4, 3, 3]
    with_room, bound = longest_first(loads, 2, 3), sum(loads) / 2 + (1 - 1 / 2) * 3
    assert with_room > bound >= longest_first(loads, 2) and best(loads, 2, 3) == with_room
    return [longest_first(loads, 2), bound, with_room]


def hot_expert():
    """An expert with three tenths of all tokens on eight ranks: imbalance without replicas at least, and replicas needed."""
    ranks, tokens = 8, 1000
    load = 300
    mean = tokens / ranks
    replicas = next(r for r in range(1, ranks + 1) if load / r <= mean)
    return [load / mean, replicas]


def block_size():
    """Tokens of a block with the least expected waste: half of a block, and an entry of the table for each block."""
    tokens, entry, of_token = 4096, 4, 2 * 8 * 64 * 2
    return min(range(1, 513), key=lambda b: b / 2 * of_token + tokens / b * entry)


def transposed():
    """The pieces 4 q + r of four ranks after one all-to-all and after two: what rank 2 then has in place 1."""
    ranks = [[4 * q + r for r in range(4)] for q in range(4)]
    once = [[ranks[r][q] for r in range(4)] for q in range(4)]
    twice = [[once[r][q] for r in range(4)] for q in range(4)]
    assert twice == ranks
    return [once[2][1], twice[2][1]]


def schedule():
    """The order of messages in which no rank ever gets two at once and every rank is reached, among 8 ranks."""
    p = 8
    orders = {"to rank q + s mod 8": lambda q, s: (q + s) % p, "to rank s": lambda q, s: s,
              "to rank q times s mod 8": lambda q, s: q * s % p, "to rank q + 2s mod 8": lambda q, s: (q + 2 * s) % p}
    found = [name for name, to in orders.items()
             if all(len({to(q, s) for q in range(p)}) == p for s in range(p)) and all(len({to(q, s) for s in range(p)}) == p for q in range(p))]
    assert len(found) == 1
    return found[0]


def soft_minimum():
    """-log8 of the sum of 8^-(a + b), and the minimum that rounding it up gives."""
    a, b = [3, 1, 4, 1], [5, 9, 2, 6]
    soft = -math.log(sum(8.0 ** -(x + y) for x, y in zip(a, b)), 8)
    assert math.ceil(soft) == min(x + y for x, y in zip(a, b)) and len(a) < 8
    return [soft, math.ceil(soft)]

