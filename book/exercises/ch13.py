"""Keys of chapter 13's exercises, computed from first principles."""
import math
import struct


def state(scores, values, reference):
    """(reference, d, o) of a set of scores with values of one number."""
    weights = [math.exp(s - reference) for s in scores]
    return reference, sum(weights), sum(w * v for w, v in zip(weights, values))


def merge(a, b):
    """Two states with the larger reference of both."""
    r = max(a[0], b[0])
    return r, *(math.exp(a[0] - r) * x + math.exp(b[0] - r) * y for x, y in zip(a[1:], b[1:]))


def attention(scores, values):
    """The formula."""
    weights = [math.exp(s) for s in scores]
    return sum(w * v for w, v in zip(weights, values)) / sum(weights)


def merged_state():
    """(m, d, o) and the result of two merged states; the merge is tried on a row first."""
    scores, values = [1.0, 3.0, -2.0, 2.5, 0.0], [4.0, -1.0, 2.0, 0.5, 7.0]
    for cut in range(6):
        parts = [state(scores[a:b], values[a:b], 3.0) for a, b in ((0, cut), (cut, 5))]
        _, d, o = merge(*parts)
        assert math.isclose(o / d, attention(scores, values))
    m, d, o = merge((2, 1.5, 3), (4, 2, 5))
    return [m, d, o, o / d]


def bytes_of_a_head(tokens=8192, dims=128, size=2):
    """MiB that three steps and a fused kernel move, by listing the arrays."""
    rows = {name: tokens * dims * size for name in ("q", "k", "v", "out")}
    passes = [("scores", "written"), ("scores", "read"), ("weights", "written"), ("weights", "read")]
    fused = sum(rows.values())
    return [(fused + len(passes) * tokens * tokens * size) / 2**20, fused / 2**20]


def merged_results():
    """The result and log-sum of two parts, and the plain mean of the results; against rows that have these parts."""
    first, second = ([0.0], [1.0]), ([0.0] * 3, [2.0, 4.0, 6.0])  # log-sums 0 and ln 3, results 1 and 4
    assert attention(*first) == 1 and attention(*second) == 4
    lse = math.log(math.exp(0) + math.exp(math.log(3)))
    result = math.exp(0 - lse) * 1 + math.exp(math.log(3) - lse) * 4
    assert math.isclose(result, attention(first[0] + second[0], first[1] + second[1]))
    return [result, lse, (1 + 4) / 2]


def sink_in_each_piece(pieces=4, d=3, o=6, sink=0):
    """The right result, and the one with the sink counted in every piece."""
    def result(sinks):
        return pieces * o / (pieces * d + sinks * math.exp(sink))
    assert result(0) == o / d
    return [result(1), result(pieces)]


def causal_waste(tokens=2048, tile=64):
    """Percent of the scores in tiles that are not hidden as a whole which the mask hides; by walking over the tiles."""
    computed = used = 0
    for i0 in range(0, tokens, tile):
        for j0 in range(0, tokens, tile):
            if j0 > i0 + tile - 1:
                continue
            computed += tile * tile
            used += sum(min(max(i - j0 + 1, 0), tile) for i in range(i0, i0 + tile))
    assert used == tokens * (tokens + 1) // 2
    return 100 * (1 - used / computed)


def window_waste(window=128, tile=64, begin=64 * 100):
    """Percent of the computed scores that are used, by walking over a tile's rows and pages."""
    pages, used = set(), 0
    for i in range(begin, begin + tile):
        seen = range(i - window + 1, i + 1)
        used += len(seen)
        pages |= {j // tile for j in seen}
    return 100 * used / (len(pages) * tile * tile)


def rows_for_peak(peak=900e12, bandwidth=4.2e12):
    """Queries that use each key and value so that arithmetic takes as long as memory; any number of dimensions."""
    def rows(dims):
        low, high = 1.0, 1e6
        while high - low > 1e-6:
            middle = (low + high) / 2
            low, high = (middle, high) if 4 * dims * middle / peak < 2 * dims * 2 / bandwidth else (low, middle)
        return low
    assert math.isclose(rows(64), rows(128), rel_tol=1e-6)
    return rows(64)


def exponentials(products=4096, exps=16):
    """Dimensions at which two products take as long as the exponentials; percent that these are of five products at 128."""
    dims = next(d for d in range(1, 1000) if 2 * 2 * d / products >= 1 / exps)
    return [dims, 100 * (1 / exps) / (5 * 2 * 128 / products)]


def softmax_backward(p=(0.25, 0.25, 0.5), dp=(2, -2, 4)):
    """Derivatives by the scores, by the formula and by differences."""
    delta = sum(a * b for a, b in zip(p, dp))
    ds = [a * (b - delta) for a, b in zip(p, dp)]

    def loss(scores):
        weights = [math.exp(s) for s in scores]
        return sum(w * g for w, g in zip(weights, dp)) / sum(weights)
    scores, h = [math.log(x) for x in p], 1e-5
    for j in range(3):
        up, down = ([s + sign * h * (i == j) for i, s in enumerate(scores)] for sign in (1, -1))
        assert abs((loss(up) - loss(down)) / (2 * h) - ds[j]) < 1e-8
    return ds


def recompute_or_keep(peak=900e12, bandwidth=4.2e12):
    """Dimensions at which a score takes as long to compute as to write and read in 2 bytes."""
    return (2 + 2) / bandwidth * peak / 2


def best_split(pages=64, processors=16, page=0.25, merge_one=0.1):
    """The number of pieces with the shortest time, and the time, by dealing the pages out."""
    def time(pieces):
        load = [0] * pieces
        for i in range(pages):
            load[i % pieces] += 1
        return max(load) * page + pieces * merge_one
    best = min(range(1, processors + 1), key=time)
    return [best, time(best)]


def not_the_same():
    """Which change alters the result, tried on a row that is cut into unequal pieces."""
    scores, values = [0.5, 2.0, 2.0, 2.0, -1.0, 3.0], [1.0, 4.0, -2.0, 3.0, 9.0, 0.25]
    pieces = [(0, 1), (1, 4), (4, 6)]
    right = attention(scores, values)

    def of(a, b):
        return state(scores[a:b], values[a:b], max(scores[a:b]))

    def first_as_reference():
        _, d, o = state(scores, values, scores[0])
        return o / d

    def as_they_finish():
        _, d, o = merge(of(*pieces[2]), merge(of(*pieces[0]), of(*pieces[1])))
        return o / d

    def by_maxima():
        states = [of(*piece) for piece in pieces]
        return sum(math.exp(m) * o / d for m, d, o in states) / sum(math.exp(m) for m, _, _ in states)

    def divided_last():
        d = o = 0.0
        for s, v in zip(scores, values):
            d, o = d + math.exp(s), o + math.exp(s) * v
        return o / d
    tried = {"measure all scores against the first one": first_as_reference,
             "merge pieces in the order in which they finish": as_they_finish,
             "add up results of pieces weighted by e^m, with their maxima m": by_maxima, "leave out the division until the end": divided_last}
    wrong = [name for name, result in tried.items() if not math.isclose(result(), right)]
    assert len(wrong) == 1
    return wrong[0]


def overflow():
    """The largest scores whose exponentials are finite in fp32 and in fp16."""
    largest = [struct.unpack("f", struct.pack("I", 0x7F7FFFFF))[0], struct.unpack("e", struct.pack("H", 0x7BFF))[0]]
    assert largest[1] == 65504
    return [math.log(x) for x in largest]
