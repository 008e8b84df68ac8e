"""Keys of chapter 2's exercises, computed from first principles."""
import math


def dot_intensity():
    n = 1000
    flops, moved = 2 * n, 2 * n * 4
    return flops / moved


def triad():
    flops, read, written = 2, 2 * 8, 8
    named = flops / (read + written)
    fetched = flops / (read + written + 8)  # the line that is written is fetched first
    assert fetched < named
    return [named, fetched]


def matmul_intensity():
    n = 1024
    return 2 * n**3 / (3 * n * n * 4)


def ridge():
    return 989e12 / 4.8e12


def in_flight():
    moved = 4.8e12 * 600e-9
    return [moved / 1e6, moved / 132 / 1024]


def lists():
    one = 64 / 100e-9
    return [one / 1e9, math.ceil(32e9 / one)]


def bound(demands):
    """Times of the resources, each list a phase: phases one after the other, and all overlapped."""
    return [sum(max(phase) for phase in demands), max(sum(phase[r] for phase in demands) for r in range(len(demands[0])))]


def two_phases():
    apart, together = bound([(3, 1), (1, 4)])
    assert together <= apart <= 2 * together
    return [apart, together]


def best_gain():
    """The largest gain from overlap over all pairs of phases with whole times up to 6 on two resources."""
    times = [(a, b) for a in range(7) for b in range(7)]
    gains = [apart / together for p in times for q in times for apart, together in [bound([p, q])] if together]
    assert max(gains) <= 2
    return max(gains)


def batch():
    width, rate, flops = 4096, 4.8e12, 989e12

    def compute_bound(tokens):
        moved = 2 * width * width + 2 * 2 * tokens * width  # weights; inputs and outputs
        return 2 * tokens * width * width / flops >= moved / rate

    return next(t for t in range(1, 5000) if compute_bound(t))


def mixed_rate():
    first, second = 0.5 / 4, 0.5 / 1  # seconds for a terabyte
    return 1 / (first + second)


def chains():
    latency, started_each_cycle = 4, 2
    return latency * started_each_cycle


def left_of_ridge():
    peak, rate, flops, moved = 60e12, 4e12, 8, 8
    time = lambda p=peak, b=rate, f=flops, m=moved: max(f / p, m / b)
    gains = {"half the multiply-adds": time() / time(f=flops / 2), "twice the multiply-add units": time() / time(p=2 * peak),
             "numbers of half the size": time() / time(m=moved / 2)}
    return max(gains, key=gains.get)


def stream_rates():
    """GB/s that STREAM reports for a bus of 40 GB/s full of a triad's lines, with the line of a fetched first and without."""
    bus, line = 40e9, 64
    reported = 3 * line  # it counts two arrays read and one written
    return [reported / ((reported + fetched) / bus) / 1e9 for fetched in (line, 0)]
