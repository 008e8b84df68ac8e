"""Keys of chapter 24's exercises: from first principles, or from the records."""
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "_ext"))


def lookup():
    import records
    return records.Records(program=None)


def whole(p, s):
    """How many times as fast the whole becomes when a part of share p, at the share s of its limit, reaches it."""
    before, part = 1.0, p
    return before / (before - part + s * part)


def with_ceiling():
    assert math.isclose(whole(0.3, 0.8), 1 / (1 - 0.3 * 0.2))
    return [whole(0.3, 0.8), whole(0.3, 0)]


def months_to_pay():
    paid, month = -80 * 10, 0
    while paid < 0:
        paid, month = paid + 50, month + 1
    return month


def attempt():
    bill, months, ratio, build, keep = 1000, 6, 1.25, 400, 20
    saved = months * (bill - bill / ratio - keep)
    return [0.5 * saved - build, build / saved]


def which_first():
    saved = {f"{ratio} times on a part with {part}": part * (1 - 1 / ratio) for ratio, part in ((10, 0.05), (1.2, 0.6), (2, 0.15))}
    return max(saved, key=saved.get)


def steps_to_take():
    """By trying every number of steps; looking one step ahead finds the same."""
    ratios, cost, bill = (1.2, 1.1, 1.06, 1.03, 1.01), 2500, 5000 * 12
    net = [bill - bill / math.prod(ratios[:k]) - cost * k for k in range(len(ratios) + 1)]
    best = max(range(len(net)), key=net.__getitem__)
    steps = 0
    while steps < len(ratios) and net[steps + 1] > net[steps]:
        steps += 1
    assert steps == best
    return [best, net[best]]


def left_of_transpose():
    return whole(0.4, lookup().number("h200:ch07/transpose_gpu/vectorized?n=16384 share"))


def share_of_large():
    large, small = (lookup().number(f"cpu:ch07/gather_sorted/bucketed?n={n} ratio") for n in (8388608, 1048576))
    low, high = 0.0, 1.0
    for _ in range(60):  # by halving: the new time falls as the share of large tables grows
        x = (low + high) / 2
        low, high = (x, high) if x / large + (1 - x) / small > 1 else (low, x)
    return x


def sunk():
    saved, rate = 30 * 12, 10
    return [saved - 20 * rate, saved - 80 * rate]


def hidden_host():
    host, gpu = 250, 280
    return [(host + gpu) / (host / 2 + gpu), max(host, gpu) / max(host / 2, gpu)]


def look_first():
    without, first = 40, 1 + 0.7 * 40
    return without - first


def came_to_nothing():
    """Counted here without the book's own ledger."""
    verdicts = []
    for experiment in (e for file in {id(f): f for f in lookup().files.values()}.values() for e in file["experiments"]):
        for variant in (v for point in experiment["points"] for v in point["variants"]):
            prediction = variant.get("prediction") or {}
            words = prediction.get("text", "").split()
            if (variant["kind"] == "optimized" and words[:1] == ["ratio"] and float(words[-1]) >= 1.1
                    and prediction.get("held") is not None):
                verdicts.append(variant["verdict"])
    return [100 * verdicts.count("SLOWER") / len(verdicts),
            100 * (verdicts.count("SAME") + verdicts.count("INCONCLUSIVE")) / len(verdicts)]
