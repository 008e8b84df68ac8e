"""Keys of chapter 1's exercises, computed from first principles."""
import math

FLOAT, LINE, PAGE = 4, 64, 4096


def lru_hits(trace, capacity):
    """Hits of a fully associative cache that evicts the least recently used line."""
    held, hits = [], 0
    for line in trace:
        if line in held:
            hits += 1
            held.remove(line)
        elif len(held) == capacity:
            held.pop(0)
        held.append(line)
    return hits


def fifo_misses(trace, capacity):
    held, misses = [], 0
    for line in trace:
        if line not in held:
            misses += 1
            held = (held + [line])[-capacity:]
    return misses


def best_hits(trace, capacity):
    """The most hits that any policy can have, by trying every choice of what to evict."""
    def play(i, held):
        if i == len(trace):
            return 0
        line = trace[i]
        if line in held:
            return 1 + play(i + 1, held)
        if len(held) < capacity:
            return play(i + 1, held | {line})
        return max(play(i + 1, held - {out} | {line}) for out in held)

    return play(0, frozenset())


def reuse_distances(trace):
    """For each access the number of distinct other lines since the line's last use; infinite for a first use."""
    last, distances = {}, []
    for i, line in enumerate(trace):
        distances.append(len(set(trace[last[line] + 1 : i])) if line in last else math.inf)
        last[line] = i
    return distances


def set_hits(addresses, sets, ways, line=LINE):
    """Hits of a set-associative cache: each set is a small LRU cache of its own."""
    lines = [address // line for address in addresses]
    return sum(lru_hits([n for n in lines if n % sets == s], ways) for s in range(sets))


def geometry():
    size, ways = 32 * 1024, 8
    sets = size // (ways * LINE)
    # The first address beyond 0 that falls into set 0 again.
    stride = next(a for a in range(LINE, 1 << 20, LINE) if a // LINE % sets == 0)
    assert sets * ways * LINE == size
    return [sets, stride]


def abcabc():
    trace = "abcabc"
    keys = [lru_hits(trace, 2), best_hits(trace, 2), lru_hits(trace, 3)]
    assert keys[0] <= keys[1] <= keys[2]
    return keys


def one_pass():
    trace = "abcbadacb"
    distances = reuse_distances(trace)
    misses = [sum(d >= capacity for d in distances) for capacity in (1, 2, 3, 4)]
    # The law: the histogram says what four simulations say.
    assert misses == [len(trace) - lru_hits(trace, capacity) for capacity in (1, 2, 3, 4)]
    assert misses == sorted(misses, reverse=True)
    return misses


def belady():
    trace = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5]
    keys = [fifo_misses(trace, 3), fifo_misses(trace, 4)]
    assert keys[0] < keys[1]
    assert lru_hits(trace, 3) <= lru_hits(trace, 4)
    return keys


def touched(rows, sets):
    """Sets that a column of a matrix with `rows` rows of `rows` floats falls into."""
    return len({i * rows * FLOAT // LINE % sets for i in range(rows)})


def column_sets():
    assert touched(2048, 2048) == 16 and touched(2000, 2048) == 2000
    return [touched(2048, 64), touched(512, 64), touched(2000, 64)]


def padding():
    """The least number of floats added to a row of 2048 that lets a column use every set of the L1."""
    def sets(width):
        return len({i * width * FLOAT // LINE % 64 for i in range(2048)})

    return next(extra for extra in range(1, 2048) if sets(2048 + extra) == 64 and extra % (LINE // FLOAT) == 0)


def useful_fraction():
    particle, used = 64, 4
    assert particle == LINE
    return used / LINE


def layout_ratio():
    """Bytes of an array of structs over those of separate arrays: 16 fields, 4 read, one float written through the cache."""
    fields, read = 16, 4
    written = 2 * FLOAT  # fetched, because the store misses, and written back later
    return (fields * FLOAT + written) / (read * FLOAT + written)


def tlb_reach():
    entries = 2048
    return [entries * PAGE / 2**20, entries * (2 * 2**20) / 2**30]


def chains():
    latency_ns, records = 100, 1_000_000
    one = records * latency_ns * 1e-6  # milliseconds
    assert one == 100
    return [one, one / 4]


def widget_hits():
    return [set_hits([FLOAT * stride * i for i in range(256)], sets=8, ways=2) for stride in (1, 2, 16)]


def twice_around():
    """Hits in the second of two walks over 16 neighbouring lines, and over 16 lines that are 128 floats apart."""
    def second(step):
        once = [step * i for i in range(16)]
        return set_hits(once + once, sets=8, ways=2) - set_hits(once, sets=8, ways=2)

    return [second(LINE), second(128 * FLOAT)]
