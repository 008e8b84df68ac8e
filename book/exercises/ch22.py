"""Keys of chapter 22's exercises: from first principles, or counted in the records."""
import itertools
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "_ext"))


def lookup():
    import records
    return records.Records(program=None)


def shapley(players, value):
    """The mean of what each adds, over all orders of arrival."""
    total = dict.fromkeys(players, 0.0)
    orders = list(itertools.permutations(players))
    for order in orders:
        for i, player in enumerate(order):
            total[player] += value(frozenset(order[: i + 1])) - value(frozenset(order[:i]))
    shares = {player: total[player] / len(orders) for player in players}
    assert math.isclose(sum(shares.values()), value(frozenset(players)))
    return shares


def shapley_two():
    gain = {frozenset(): 1, frozenset("A"): 2, frozenset("B"): 3, frozenset("AB"): 4}
    shares = shapley("AB", lambda made: math.log2(gain[made]))
    return [shares["A"], shares["B"]]


def odds():
    def after(p, q):
        return p / (p + q)  # from even odds
    return [after(0.9, 0.3), after(0.1, 0.7)]


def bits():
    low, high = math.log2(1 / 2), math.log2(4)
    allowed = [(1.8, 2.2), (2, 4), (1, 4)]
    return [math.log2((high - low) / (math.log2(b) - math.log2(a))) for a, b in allowed]


def together():
    a, b = 2, 1.5
    product, sum_of_savings = a * b, 1 / (1 - (1 - 1 / a) - (1 - 1 / b))
    small = 1.001
    assert math.isclose(small * small, 1 / (2 / small - 1), rel_tol=2e-6)  # for small gains both are the same
    return [product, sum_of_savings]


def possible():
    return 1 / lookup().number("cpu:ch09/matmul_cpu/loop_order?n=256 share")


def base_rates():
    """Counted here without the book's own ledger."""
    import json
    within = high = count = 0
    for path in sorted((pathlib.Path(__file__).resolve().parents[2] / "results").glob("*/**/*.json")):
        file = json.loads(path.read_text())
        if not str(file.get("schema", "")).startswith("fathom.results/"):
            continue
        for variant in (v for e in file["experiments"] for p in e["points"] for v in p["variants"]):
            prediction = variant.get("prediction") or {}
            words = prediction.get("text", "").split()
            if len(words) != 2 or prediction.get("held") is None:
                continue
            measured = variant["share_of_limit"] if words[0] == "share" else variant["ratio"]["median"]
            off = measured / float(words[1])
            count, within, high = count + 1, within + (0.9 <= off < 1.1), high + (off < 0.9)
    return [100 * within / count, 100 * high / count]


def which_run():
    """The run for which the two hypotheses foretell different things: (sets, TLB), True where the walk gets faster."""
    def sets_in_conflict(row_bytes):
        lines = {row * row_bytes // 64 % 64 for row in range(512)}  # of a L1 of 64 sets
        return len(lines) < 64

    def pages_of_a_column(row_bytes, page):
        return len({row * row_bytes // page for row in range(2048)})

    before = 8192
    assert sets_in_conflict(before) and not sets_in_conflict(before + 64) and not sets_in_conflict(8000)
    many = pages_of_a_column(before, 4096)
    foretold = {
        "pad each row by one line": (not sets_in_conflict(before + 64), pages_of_a_column(before + 64, 4096) < many / 2),
        "use rows of 2000 in place of 2048 floats and huge pages": (not sets_in_conflict(8000), pages_of_a_column(8000, 2 << 20) < many / 2),
        "use half as many rows": (False, False),  # still more than the TLB reaches, and the same sets
        "run it twice": (False, False),
    }
    separating = [run for run, (sets, tlb) in foretold.items() if sets != tlb]
    assert len(separating) == 1
    return separating[0]


def do_it_twice():
    read, compute = 3, 5
    add, overlap = lambda r: r + compute, lambda r: max(r, compute)
    return [abs(time(times * read) - time(read)) for time in (add, overlap) for times in (0, 2)]


def twenty_useless():
    return [100 * (1 - 0.95**20), 100 * 0.05 / 2]


def shapley_three():
    def time(made):
        half = lambda name, t: t / 2 if name in made else t
        return max(half("reads", 4), half("arithmetic", 4)) + half("start", 2)
    names = ("reads", "arithmetic", "start")
    shares = shapley(names, lambda made: math.log2(time(()) / time(made)))
    assert math.isclose(sum(shares.values()), 1) and time(("reads",)) == time(())
    return [shares[name] for name in names]


def uncertain_ratio():
    return math.exp(math.sqrt(2) * math.log(1.2))


def next_block():
    blocks = {threads: 2**26 / threads for threads in (64, 256)}
    return lookup().number("h200:ch06/block_size/threads_64 time") / blocks[64] * blocks[256] * 1e6
