"""Keys of chapter 7's exercises, computed from first principles."""
import itertools
import math
import random
import struct


def single(x):
    """The float32 nearest to x."""
    return struct.unpack("f", struct.pack("f", x))[0]


# ---- bytes ----


def csr_bytes(rows, kept, value=4, index=4):
    """Values and their columns, and where each row begins, with one more for the end."""
    return kept * (value + index) + (rows + 1) * index


def csr_break_even():
    """Percent of nonzeros up to which a 1000 x 1000 matrix in CSR takes no more bytes than all of its places."""
    n = 1000
    dense = n * n * 4
    kept = max(k for k in range(dense // 8 + 1) if csr_bytes(n, k) <= dense)
    assert csr_bytes(n, kept + 1) > dense
    assert math.isclose(kept / n**2, 4 / 8 - (n + 1) * 4 / (n**2 * 8), abs_tol=1e-6)  # the chapter's formula
    return 100 * kept / n**2


def list_break_even():
    """Percent of nonzeros at which 1.2 ns for each of them takes as long as 4 bytes for each place, at 24 and at 72 GB/s."""
    def percent(bandwidth, a_nonzero=1.2e-9, places=1 << 20):
        dense = 4 * places / bandwidth
        return 100 * (dense / a_nonzero) / places
    assert math.isclose(percent(4 / 1.2e-9), 100)  # a place as dear as a nonzero: always worth a list
    return [percent(24e9), percent(72e9)]


def blocks_break_even():
    """Percent of nonzeros, at random, above which blocks of 8 x 8 with an index of 4 bytes each take more bytes than all places; by bisection."""
    def share_of_dense(density):
        return blocks_kept(density, 64) * (64 * 4 + 4) / (64 * 4)
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if share_of_dense(middle) <= 1 else (low, middle)
    assert math.isclose(low, 1 - (1 - 256 / 260) ** (1 / 64), rel_tol=1e-9)
    return 100 * low


def two_of_four():
    """Bytes of 2:4 bf16 as a share of dense: with two indices of 2 bits, and with the fewest bits that tell patterns apart."""
    patterns = len(list(itertools.combinations(range(4), 2)))
    assert patterns == 6
    bits = 2 * 16
    return [(bits + 2 * 2) / (4 * 16), (bits + math.log2(patterns)) / (4 * 16)]


def bitmap_or_indices():
    """The density at which a bit for each place takes as much as an index of 16 bits for each nonzero; found by bisection."""
    places = 1 << 20
    def list_bits(kept): return kept * (16 + 16)
    def map_bits(kept): return kept * 16 + places
    low, high = 0, places
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if list_bits(middle) <= map_bits(middle) else (low, middle)
    assert list_bits(low) <= map_bits(low) and list_bits(low + 1) > map_bits(low + 1)
    return low / places


# ---- floats ----


def addends_that_change():
    """Of four factors x, the one for which s + 0 x is not s."""
    s = single(1.5)
    found = [name for name, x in {"-3": -3.0, "the smallest subnormal": 2.0**-149, "the largest finite float": 2.0**127 * (2 - 2.0**-23),
                                  "infinity": math.inf}.items() if not single(s + single(0.0 * x)) == s]
    assert math.copysign(1, 0.0 * -3.0) == -1 and 0.0 + 0.0 * -3.0 == 0.0  # a negative zero, equal to zero
    assert len(found) == 1
    return found[0]


def may_repeat():
    """The fold over 13 numbers that stays right when its second vector of 8 begins at the sixth element."""
    row = [3.0, -1.0, 4.0, 1.0, -5.0, 9.0, 2.0, 6.0, 5.0, 3.0, 5.0, 8.0, 7.0]
    folds = {"the sum": sum, "the product": math.prod, "the largest": max, "the mean": lambda v: sum(v) / len(v)}
    vectors = row[:8] + row[5:13]
    found = [name for name, fold in folds.items() if not math.isclose(fold(vectors), fold(row))]
    assert len(found) == 3
    return next(name for name in folds if name not in found)


# ---- tests ----


def worth_testing():
    """The smallest share q of skippable items, at random, for which a test pays: work of 40 and of 5, test 1, misprediction 10."""
    def pays(q, work, test=1, missed=10):
        best = min(test + (1 - q) * work + missed * wrong for wrong in (q, 1 - q))  # guess "no skip" always, or "skip" always
        return best < work
    def threshold(work):
        low, high = 0.0, 1.0
        assert not pays(low, work) and pays(high, work)
        while high - low > 1e-12:
            middle = (low + high) / 2
            low, high = (low, middle) if pays(middle, work) else (middle, high)
        return high
    assert not any(pays(q / 1000, 5) for q in range(501))  # as long as q <= 1/2, shorter work than a misprediction never pays
    return [threshold(40), threshold(5)]


# ---- blocks ----


def blocks_kept(density, places):
    return 1 - (1 - density) ** places


def kept_lines_and_tiles():
    """Shares of lines of 16 and of tiles of 8 x 8 that hold a nonzero, one place in 100 being nonzero at random."""
    for places in (2, 3, 4):  # all patterns of a small block, weighted by their chance
        exact = sum(0.25 ** sum(p) * 0.75 ** (places - sum(p)) for p in itertools.product((0, 1), repeat=places) if any(p))
        assert math.isclose(exact, blocks_kept(0.25, places))
    return [blocks_kept(0.01, 16), blocks_kept(0.01, 64)]


def causal_tiles(side):
    """Percent of side x side tiles that a causal mask leaves at least partly in reach, counted place by place."""
    tile = 4
    kept = {(i // tile, j // tile) for i in range(side * tile) for j in range(i + 1)}
    return 100 * len(kept) / side**2


def causal_eight():
    """The same for eight tiles a side."""
    assert causal_tiles(1) == 100
    for side in range(1, 12):
        assert math.isclose(causal_tiles(side), 100 * (side + 1) / (2 * side))
    return causal_tiles(8)


def window_tiles():
    """Positions computed for each one needed, a window of 128 in tiles of 32 and of 128, away from the start."""
    def factor(tile, window=128):
        begin = 16 * window
        seen = {j // tile for i in range(begin, begin + tile) for j in range(i - window + 1, i + 1)}
        return len(seen) * tile * tile / (tile * window)
    assert factor(64) == 1.5 and factor(1) == 1.0
    return [factor(32), factor(128)]


# ---- experts ----


def distinct(experts, chosen, tokens):
    """Expected number of experts that at least one token chose, each token choosing a random set."""
    return experts * (1 - (1 - chosen / experts) ** tokens)


def distinct_exactly(experts, chosen, tokens):
    sets = list(itertools.combinations(range(experts), chosen))
    counts = [len(set().union(*choice)) for choice in itertools.product(sets, repeat=tokens)]
    return sum(counts) / len(counts)


def distinct_experts():
    """Top-8 of 256, 32 tokens."""
    for case in ((4, 1, 3), (5, 2, 3), (4, 3, 2)):
        assert math.isclose(distinct(*case), distinct_exactly(*case))
    return distinct(256, 8, 32)


def until_half():
    """Tokens after which at least half of the experts are expected to be in use: top-4 of 32, and top-8 of 256."""
    def tokens(experts, chosen):
        return next(t for t in range(1, 1000) if distinct(experts, chosen, t) >= experts / 2)
    assert tokens(2, 1) == 1
    return [tokens(32, 4), tokens(256, 8)]


def loads(experts, tokens):
    """All equally likely outcomes: the load of each expert."""
    for choice in itertools.product(range(experts), repeat=tokens):
        yield [choice.count(e) for e in range(experts)]


def fullest_of_four():
    """Expected largest load when four tokens choose one of four experts each, and the share of experts that get none."""
    outcomes = list(loads(4, 4))
    assert len(outcomes) == 4**4 and all(sum(load) == 4 for load in outcomes)
    fullest = sum(max(load) for load in outcomes) / len(outcomes)
    empty = sum(load.count(0) for load in outcomes) / (4 * len(outcomes))
    assert math.isclose(empty, (3 / 4) ** 4)  # the law of blocks again
    return [fullest, empty]


def largest_load_bound(experts, mean):
    assert mean >= math.log(experts) / 3
    return 1 + 2 * math.sqrt(math.log(experts) / mean)


def imbalance():
    """The bound on largest over mean load for top-4 of 32 with 512 and with 8192 tokens; below it by simulation."""
    source = random.Random(7)
    trials = []
    for _ in range(40):
        load = [0] * 32
        for _ in range(512):
            for e in source.sample(range(32), 4):
                load[e] += 1
        trials.append(max(load) / 64)
    assert 1 < sum(trials) / len(trials) < largest_load_bound(32, 64)
    for step in range(1, 1791):  # what the bound's proof uses: e^x <= 1 + x + x^2 up to 1.79
        x = step / 1000
        assert math.exp(x) <= 1 + x + x * x
    return [largest_load_bound(32, 512 * 4 / 32), largest_load_bound(32, 8192 * 4 / 32)]


def rows_of_expert():
    """Rows that each expert in use has on average, top-2 of 16: with 1, 8 and 64 tokens."""
    def rows(tokens):
        return 2 * tokens / distinct(16, 2, tokens)
    assert rows(1) == 1 and rows(10_000) > 1249
    return [rows(1), rows(8), rows(64)]
