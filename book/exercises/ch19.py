"""Keys of chapter 19's exercises: from first principles, by going through all cases, or from the records."""
import itertools
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "_ext"))


def lookup():
    import records
    return records.Records(program=None)


def stages():
    """Rates of a pipeline of three stages, before and after its slowest becomes four times as fast: by filling a second."""
    def rate(stages_):
        demands = [visits * seconds / servers for visits, seconds, servers in stages_]
        requests = 0
        while all((requests + 1) * demand <= 1 + 1e-9 for demand in demands):
            requests += 1
        assert requests == math.floor(1 / max(demands) + 1e-9)
        return requests
    before = [(1, 0.002, 1), (40, 0.0005, 1), (1, 0.016, 2)]  # tokenizer, decode steps, a database with two servers
    slowest = max(range(3), key=lambda i: before[i][0] * before[i][1] / before[i][2])
    after = [(v, s / 4 if i == slowest else s, c) for i, (v, s, c) in enumerate(before)]
    return [rate(before), rate(after)]


def factor_that_grew():
    """Which factor of the demand of a token grew in the loop of case 1, by its record: the end of the run against its beginning."""
    found = lookup()

    def of(field, tokens):
        return found.number(f"cpu:ch08/decaying_state/as_found?tokens={tokens} {field}")
    rows = {"begin": of("row_updates", 128) / 128, "end": (of("row_updates", 4096) - of("row_updates", 2048)) / 2048}
    seconds = {"begin": of("time", 128) / of("row_updates", 128),
               "end": (of("time", 4096) - of("time", 2048)) / (of("row_updates", 4096) - of("row_updates", 2048))}
    grew = {"visits, the rows that a token multiplies": rows["end"] / rows["begin"],
            "the time of a visit, what a row costs": seconds["end"] / seconds["begin"],
            "servers, the threads that share the work": 1.0}
    assert sorted(grew.values())[-1] > 2 * sorted(grew.values())[-2]
    return max(grew, key=grew.get)


def cost_in_time():
    """Answers in time for 1000 seconds of the machine, of two schedulers at one and a half times the load, by the record."""
    found = lookup()
    return [1000 / (found.number(f"cpu:ch16/latency_percentiles/{variant}?load_percent=150 ns_per_good_request") * 1e-9)
            for variant in ("plain", "bounded")]


def one_of_many():
    late = 0.01

    def any_of(n):
        on_time = 1.0
        for _ in range(n):
            on_time *= 1 - late
        return 1 - on_time
    n = next(n for n in itertools.count(1) if any_of(n) >= 0.5)
    return [100 * any_of(100), n]


def ring(ranks, size, alpha, bandwidth):
    """Seconds of an all-reduce, step by step: each step sends one piece of `size / ranks`."""
    return sum(alpha + size / ranks / bandwidth for _ in range(2 * (ranks - 1)))


def fitted():
    """The two constants of a ring of two ranks, from the times of its smallest and its largest message."""
    small, large, size = 10.8e-6, 890e-6, 2**28
    alpha = (small - 0) / 2  # 4 KiB are taken for nothing
    bandwidth = size / (large - 2 * alpha)
    assert math.isclose(ring(2, size, alpha, bandwidth), large)
    held_out = ring(4, 2**30, alpha, bandwidth)
    return [1e6 * alpha, bandwidth / 1e9, 1e3 * held_out]


def where_communication_takes_over(one_gpu=200.0, exchange=0.16):
    """The number of GPUs at which computing a step takes no longer than the exchange, and the efficiency of 500 if nothing is hidden."""
    n = next(n for n in itertools.count(1) if one_gpu / n <= exchange)
    return [n, 100 * (one_gpu / 500) / (one_gpu / 500 + exchange)]


def failures(unexpected=419, days=54, gpus=16384, mine=1000, checkpoint=60.0):
    """Hours between two failures on `mine` GPUs, and minutes between two checkpoints that lose least, found by trying."""
    between = days * 24 / unexpected * gpus / mine
    lost = lambda interval: checkpoint / interval + interval / 2 / (between * 3600)
    best = min(range(60, 60000), key=lost)
    assert abs(best - math.sqrt(2 * checkpoint * between * 3600)) < 2
    return [between, best / 60]


def share_of_the_slow(speed=0.1):
    """Percent of requests that the slow one of 4 workers gets if work goes where there is room, and the fewest workers with less than 1 %."""
    def share(workers):
        return speed / (workers - 1 + speed)
    return [100 * share(4), next(w for w in itertools.count(2) if share(w) < 0.01)]


def storm(arrive=100, capacity=150, tries=3, budget=0.2):
    """Requests a second that reach a server whose answers all come too late: each tried three more times, or with a budget."""
    return [arrive * (1 + tries), arrive * (1 + budget)]


def who_is_wrong():
    """Which protocol lets a late write into a page that was granted again, by going through all orders of events.

    An old writer looks at its lease, then its bytes arrive. Between any two events the lease may end, and the page be
    granted anew, written by the new writer and reported as complete."""
    def ends_wrong(checked_at_the_writer, checked_at_the_memory, waits):
        for order in itertools.permutations(("look", "bytes", "regrant", "complete")):
            if order.index("look") > order.index("bytes") or order.index("regrant") > order.index("complete"):
                continue
            page, tag, allowed, written, reported = None, "old", not checked_at_the_writer, False, None
            for event in order:
                if event == "look" and checked_at_the_writer:
                    allowed = tag == "old"
                elif event == "bytes":
                    written = True
                    if allowed and not (checked_at_the_memory and tag != "old"):
                        page = "old"
                elif event == "regrant":
                    if waits and not written:
                        break  # the page stays where it is until the writer is gone
                    tag = "new"
                elif event == "complete":
                    page = reported = "new"
            if reported and page != reported:
                return True
        return False
    protocols = {"the writer looks whether its lease still runs, then writes": (True, False, False),
                 "the memory compares the write's tag with the one that is granted": (False, True, False),
                 "the page is not granted again before the old writer is gone": (False, False, True)}
    wrong = [name for name, rules in protocols.items() if ends_wrong(*rules)]
    assert len(wrong) == 1
    return wrong[0]


def false_alarms(histories=300, significance=0.01):
    quiet = 1.0
    for _ in range(histories):
        quiet *= 1 - significance
    return [histories * significance, 100 * (1 - quiet)]


def always_on(machines=100, hertz=1, seconds_a_sample=20e-6, share=0.05, half_width=0.005):
    """Percent of a machine's time that sampling takes, and minutes until a function's share is known, 95 %, over all machines."""
    samples = 1.96**2 * share * (1 - share) / half_width**2
    return [100 * hertz * seconds_a_sample, samples / (machines * hertz) / 60]


def placed():
    """Requests a second that one thread of a router can place at most, by the record."""
    return 1e9 / lookup().number("cpu:ch17/routing_static/by_cost submit_ns")


if __name__ == "__main__":
    for name, function in list(globals().items()):
        if callable(function) and function.__module__ == "__main__" and name not in ("lookup", "ring"):
            print(name, function())
