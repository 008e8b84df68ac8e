"""Keys of chapter 18's exercises, computed from first principles."""
import itertools
import math


def rows_with_and_without():
    prompt, generated = 100, 50
    without = sum(prompt + done for done in range(generated))
    kept, rows = 0, 0
    for done in range(generated):  # with a cache: what is not in it yet
        rows, kept = rows + prompt + done - kept, prompt + done
    return [without, rows]


def bytes_a_token(layers=32, heads=8, numbers=128, size=2):
    return 2 * layers * heads * numbers * size


def cache_bytes():
    return [bytes_a_token(), bytes_a_token() * 8192 / 2**30]


def latent_bytes():
    return 61 * (512 + 64) * 2


def wasted():
    places = math.ceil(100 / 16) * 16
    return [100 * (2048 - 100) / 2048, 100 * (places - 100) / places]


def blocks_of_three():
    """By putting every block, named by all tokens up to its end, into a set."""
    texts = [[("common", i) for i in range(32)] + [(request, i) for i in range(8)] for request in range(3)]
    blocks = [(tuple(text[: end + 16]), len(text) >= end + 16, text) for text in texts for end in range(0, 40, 16)]
    shared = {key for key, full, _ in blocks if full} | {key for key, full, _ in blocks if not full}
    assert len({key for key, full, _ in blocks if full}) == 2
    return [len(shared), len(blocks)]


def tokens(alpha, drafts):
    """Mean tokens of a step, over all outcomes of its drafts."""
    mean = 0.0
    for right in itertools.product((True, False), repeat=drafts):
        accepted = next((i for i, r in enumerate(right) if not r), drafts)
        mean += math.prod(alpha if r else 1 - alpha for r in right) * (accepted + 1)
    return mean


def expected_tokens():
    assert math.isclose(tokens(0.8, 4), (1 - 0.8**5) / 0.2)
    return [tokens(0.8, 4), tokens(0.8, 4) / 1.5]


def break_even():
    keys = []
    for drafts, cost in ((1, 1.24), (3, 1.61)):
        low, high = 0.0, 1.0
        for _ in range(60):
            alpha = (low + high) / 2
            low, high = (low, alpha) if tokens(alpha, drafts) > cost else (alpha, high)
        keys.append(alpha)
    return keys


def where_the_cache_wins():
    weights, cache = 4e9, bytes_a_token() * 8192
    rate = lambda n: n / (weights + n * cache)
    return [weights / cache, rate(64) / rate(8)]


def distinct_experts():
    """Through the distribution of the number of experts in use, row by row."""
    def mean(rows):
        ways = {0: 1.0}
        for _ in range(rows):
            after = {}
            for used, p in ways.items():
                for new in range(min(4, 32 - used) + 1):  # of the four chosen, how many were not in use
                    share = math.comb(32 - used, new) * math.comb(used, 4 - new) / math.comb(32, 4)
                    after[used + new] = after.get(used + new, 0) + p * share
            ways = after
        return sum(used * p for used, p in ways.items())

    keys = [mean(8), mean(64)]
    assert all(math.isclose(key, 32 * (1 - (28 / 32) ** rows)) for key, rows in zip(keys, (8, 64)))
    return keys


def in_flight():
    return [20 * 1.5, 20 * 1.5 * 2000 * bytes_a_token() / 2**30]


def budget():
    rows = max(n for n in range(1, 1000) if 0.2 + 0.18 * n <= 20)
    left, steps = 1000, 0
    while left > 0:
        left, steps = left - (rows - 10), steps + 1
    return [rows, steps]


def static_and_continuous():
    answers, places = [8, 1, 1, 1, 8, 1], 2
    static = sum(max(answers[i : i + places]) for i in range(0, len(answers), places))
    waiting, running, steps = list(answers), [], 0
    while waiting or running:
        while waiting and len(running) < places:
            running.append(waiting.pop(0))
        running = [left - 1 for left in running if left > 1]
        steps += 1
    return [static, steps]
