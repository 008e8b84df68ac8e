"""Keys of chapter 14's exercises, computed from first principles."""
import fractions
import itertools
import math


def programs_and_lanes(n=1000, block=256):
    """Programs of a grid and masked lanes, by listing every lane."""
    lanes = [(program, program * block + lane) for program in range(-(-n // block)) for lane in range(block)]
    covered = [at for _, at in lanes if at < n]
    assert sorted(covered) == list(range(n))
    return [len({program for program, _ in lanes}), len(lanes) - n]


def next_power_of_two(n):
    power = 1
    while power < n:
        power *= 2
    return power


def padding(columns=2880):
    """The block, and the percent of its lanes that are masked."""
    block = next_power_of_two(columns)
    return [block, 100 * sum(lane >= columns for lane in range(block)) / block]


def overflow(row=40_000, stride=65_536):
    """A row's offset in 32 bits of two's complement, and the first row that is wrong."""
    def in_32_bits(value):
        return int.from_bytes((value % 2**32).to_bytes(4, "little"), "little", signed=True)
    first = next(r for r in itertools.count() if in_32_bits(r * stride) != r * stride)
    return [in_32_bits(row * stride), first]


def softmax(lanes):
    largest = max(lanes)
    weights = [math.exp(lane - largest) for lane in lanes]
    return [weight / sum(weights) for weight in weights]


def zero_in_a_softmax(row=(-math.log(2), -math.log(4)), block=4):
    """The first result, and what it is when masked lanes hold 0."""
    padded = [*row, *[0.0] * (block - len(row))]
    assert math.isclose(softmax([*row, -math.inf])[0], softmax(row)[0])
    return [softmax(row)[0], softmax(padded)[0]]


def zero_in_a_variance(n=6, mean=2, variance=3, block=8):
    """What the formula gives when masked lanes hold 0 and the mean is taken off; tried on a row that has these values."""
    row = [mean + sign * math.sqrt(variance) for sign in (1, -1)] * (n // 2)
    assert math.isclose(sum(row) / n, mean) and math.isclose(sum((x - mean) ** 2 for x in row) / n, variance)
    return sum((x - mean) ** 2 for x in [*row, *[0.0] * (block - n)]) / n


def right_with_zero():
    """The fold that a lane of 0 never changes, by trial."""
    folds = {"the product": math.prod, "the sum of squares": lambda row: sum(x * x for x in row), "the minimum": min, "the maximum": max}
    rows = list(itertools.product((-2.0, -1.0, 1.0, 2.0), repeat=3))
    right = [name for name, fold in folds.items() if all(fold([*row, 0.0]) == fold(row) for row in rows)]
    assert len(right) == 1
    return right[0]


def maps():
    """Three steps x -> ax + b in a block of four, with the identity and with zeros in the masked lane."""
    def composed(steps):
        b, at_one = 0, 1
        for a, c in steps:
            b, at_one = a * b + c, a * at_one + c
        return [at_one - b, b]
    steps = [(2, 1), (3, 0), (1, 5)]
    assert composed([*steps, (1, 0)]) == composed(steps)
    return [*composed(steps), *composed([*steps, (0, 0)])]


def walk(tile, down, across, group):
    """The tile's row and column in the order of triton_matmul.py."""
    first = tile // (group * across) * group
    rows = min(down - first, group)
    return [first + tile % (group * across) % rows, tile % (group * across) // rows]


def place_of_a_tile(tile=43, down=10, across=5, group=8):
    """Row and column; the walk takes each place once."""
    assert sorted(walk(t, down, across, group) for t in range(down * across)) == [[i, j] for i in range(down) for j in range(across)]
    return walk(tile, down, across, group)


def full_waves(size=3072, rows=128, columns=256, multiprocessors=132):
    """Percent of the places of persistent programs that have a tile, by dealing the tiles out."""
    tiles = (size // rows) * (size // columns)
    load = [len(range(program, tiles, multiprocessors)) for program in range(multiprocessors)]
    assert sum(load) == tiles
    return 100 * tiles / (max(load) * multiprocessors)


def break_even(first_call=fractions.Fraction("1.8"), saved=fractions.Fraction("0.00015"), per_second=100):
    """Calls until the first call is earned back, and seconds of work until then."""
    calls = math.ceil(first_call / saved)
    assert calls * saved >= first_call > (calls - 1) * saved
    return [calls, calls / per_second]


def compilations(lengths=(1, 7, 8, 9, 61, 248, 1000, 1024, 1032, 2880, 4097, 4104, 8192, 8200, 16392, 32767, 32768, 32776)):
    """Different blocks for these rows, with the power of two alone and with at least 2048."""
    return [len({max(least, next_power_of_two(length)) for length in lengths}) for least in (1, 2048)]
