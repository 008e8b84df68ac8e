"""Keys of chapter 4's exercises: a warp on paper, which counts steps, banks and sectors."""
import itertools
import math
from fractions import Fraction

LANES, BANKS, WORD, SECTOR = 32, 32, 4, 32


def sectors(addresses, size=WORD):
    """Distinct sectors that a warp's access touches; each lane's `size` bytes begin at its address."""
    return len({(a + b) // SECTOR for a in addresses for b in range(size)})


def cycles(words):
    """Cycles that shared memory needs: in each of them every bank serves one word that is still wanted."""
    wanted, count = set(words), 0
    while wanted:
        served = {word % BANKS: word for word in wanted}  # one of each bank
        wanted -= set(served.values())
        count += 1
    return count


def issued(program, lanes):
    """Instructions that a warp issues for a program of these forms, as the hardware goes through it:
    ("do", n), ("if", condition, then, otherwise), ("while", condition(lane, round), body), or a list of them."""
    if not lanes:
        return 0
    if isinstance(program, list):
        return sum(issued(part, lanes) for part in program)
    if program[0] == "do":
        return program[1]
    if program[0] == "if":
        taken = {lane for lane in lanes if program[1](lane)}
        return 1 + issued(program[2], taken) + issued(program[3], lanes - taken)
    count, active = 0, set(lanes)
    for trip in itertools.count():
        count += 1  # the test
        active = {lane for lane in active if program[1](lane, trip)}
        if not active:
            return count
        count += issued(program[2], active)


def load_sectors():
    """fp32 loads of a warp: aligned, shifted by one element, at strides of 2 and 8 elements."""
    keys = [sectors([WORD * (shift + stride * lane) for lane in range(LANES)])
            for shift, stride in ((0, 1), (1, 1), (0, 2), (0, 8))]
    for a, d in itertools.product(range(0, 256, WORD), range(WORD, 300, WORD)):  # the chapter's formula
        formula = (a + 31 * d) // SECTOR - a // SECTOR + 1 if d <= SECTOR else LANES
        assert sectors([a + d * lane for lane in range(LANES)]) == formula
    return keys


def bank_degrees():
    for stride in range(1, 200):
        assert cycles([7 + stride * lane for lane in range(LANES)]) == math.gcd(stride, BANKS)
    assert cycles([5] * LANES) == 1
    return [cycles([stride * lane for lane in range(LANES)]) for stride in (2, 3, 8, 33)]


def wide_words():
    """Doubles, two words each, at strides of 1, 2, 16 and 17 doubles."""
    def doubles(stride):
        return cycles([2 * stride * lane + half for lane in range(LANES) for half in (0, 1)])
    for stride in range(1, 100):
        assert doubles(stride) == 2 * math.gcd(stride, BANKS // 2)
    return [doubles(stride) for stride in (1, 2, 16, 17)]


def swizzles():
    """Degree of reading a column of a tile of 32 x 32 whose row i keeps column j at some place of the row."""
    def worst(place, column):
        return max(cycles([32 * i + place(i, j) for i in range(32)]) if column else
                   cycles([32 * j + place(j, k) for k in range(32)]) for j in range(32))
    places = [lambda i, j: j ^ i, lambda i, j: j ^ (i // 2), lambda i, j: (j + i) % 32]
    assert all(worst(place, False) == 1 for place in places)  # rows stay free of conflicts
    assert worst(lambda i, j: j, True) == 32
    return [worst(place, True) for place in places]


def resident_blocks(threads, registers=32, shared=0):
    """Blocks on a multiprocessor of compute capability 9.0, by the documented limits."""
    warps = math.ceil(threads / LANES)
    of_warp = math.ceil(registers * LANES / 256) * 256
    by_registers = 65536 // 4 // of_warp * 4 // warps  # each of four partitions holds whole warps
    by_shared = 228 * 1024 // (math.ceil((shared + 1024) / 128) * 128)
    return min(64 // warps, 32, by_registers, by_shared)


def occupancy():
    blocks = resident_blocks(256, registers=128)
    # The chapter's table: filters of 48, 40 and 64 registers, and blocks with 64 KiB of shared memory.
    assert [resident_blocks(512, registers) * 16 for registers in (48, 40, 64)] == [32, 48, 32]
    assert [resident_blocks(threads, shared=1 << 16) * threads // LANES for threads in (256, 512, 1024)] == [24, 48, 64]
    return [blocks, 100 * blocks * 8 / 64]


def rounds():
    """Rounds issued by two warps whose lanes need 1 and 9 in turn: as they come, and sorted by their number."""
    def of_warp(trips):
        program = ("while", lambda lane, trip: trip < trips[lane], ("do", 0))
        return issued(program, set(range(LANES))) - 1  # the last test starts no round
    trips = [9 if lane % 2 else 1 for lane in range(2 * LANES)]
    assert of_warp(list(range(1, 33))) == 32  # a loop takes as many rounds as its longest lane
    return [sum(of_warp(t[w * LANES : (w + 1) * LANES]) for w in (0, 1)) for t in (trips, sorted(trips))]


def rare_branch():
    """Percent of warps with at least one lane in a branch that a lane takes with probability 1/50."""
    none = Fraction(49, 50) ** LANES
    # The same by the distribution of the number of lanes that take it.
    some = sum(math.comb(LANES, k) * Fraction(1, 50) ** k * Fraction(49, 50) ** (LANES - k) for k in range(1, LANES + 1))
    assert some == 1 - none
    return float(100 * some)


def path_union():
    """Instructions issued and needed by the longest lane: if (lane < 8) 10 else (lane < 24 ? 20 : 30), then 5."""
    program = [("if", lambda lane: lane < 8, ("do", 10), ("if", lambda lane: lane < 24, ("do", 20), ("do", 30))), ("do", 5)]
    alone = [issued(program, {lane}) for lane in range(LANES)]
    assert max(alone) <= issued(program, set(range(LANES))) <= sum(alone)
    return [issued(program, set(range(LANES))), max(alone)]


def matmul_sectors(n=4096):
    """Sectors of a warp's two loads in one step of k, if its lanes share a row of the result, and if they share a column."""
    def both(elements):  # (i, j) of each lane
        k = 3
        return sectors([WORD * (i * n + k) for i, j in elements]) + sectors([WORD * (k * n + j) for i, j in elements])
    return [both([(5, 64 + lane) for lane in range(LANES)]), both([(64 + lane, 5) for lane in range(LANES)])]


def same_sectors():
    """The change to an aligned access that changes its number of sectors."""
    plain = [WORD * lane for lane in range(LANES)]
    changed = {"lane k takes the element of lane 31 - k": plain[::-1],
               "odd lanes repeat the address of the lane before": [a - a % 8 for a in plain],
               "lanes exchange elements at random": [plain[7 * lane % 32] for lane in range(LANES)],
               "every address grows by 4 bytes": [a + 4 for a in plain]}
    different = [text for text, addresses in changed.items() if sectors(addresses) != sectors(plain)]
    assert len(different) == 1
    return different[0]


def random_degree(bins=256, lanes=LANES):
    """Mean degree when each lane picks one of 256 neighbouring words at random; exact.

    Lanes can be spread over the bins so that a bank has at most m distinct ones: an exponential generating function
    for each bank, sum over j <= m of C(8, j) (e^x - 1)^j, to the power of the number of banks.
    """
    def product(p, q):
        return [sum(p[i] * q[k - i] for i in range(k + 1)) for k in range(lanes + 1)]

    def power(p, n):
        result = [Fraction(1)] + [Fraction(0)] * lanes
        while n:
            if n & 1:
                result = product(result, p)
            p, n = product(p, p), n >> 1
        return result

    each = bins // BANKS
    occupied = [Fraction(0)] + [Fraction(1, math.factorial(k)) for k in range(1, lanes + 1)]  # e^x - 1
    powers = [power(occupied, j) for j in range(each + 1)]

    def at_most(m):
        bank = [sum(math.comb(each, j) * powers[j][k] for j in range(m + 1)) for k in range(lanes + 1)]
        return power(bank, BANKS)[lanes] * math.factorial(lanes) / Fraction(bins) ** lanes
    assert at_most(each) == 1 and at_most(0) == 0
    return float(sum(1 - at_most(m) for m in range(each)))
