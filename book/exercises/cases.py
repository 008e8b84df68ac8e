"""Keys of the exercises of the case studies: from first principles, or from the records that their pages show."""
import math
import pathlib
import struct
import sys
from fractions import Fraction

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "_ext"))

SMALLEST = Fraction(1, 2**149)  # positive fp32
SMALLEST_NORMAL = Fraction(1, 2**126)


def fp32(x):
    """The fp32 number nearest to a Fraction >= 0, ties to even."""
    if x == 0:
        return x
    exponent = max(math.floor(math.log2(x)) - 23, -149)
    while x >= Fraction(2) ** (exponent + 24):  # where log2, in double precision, was too small
        exponent += 1
    gap = Fraction(2) ** exponent
    return round(x / gap) * gap  # Python rounds a Fraction's tie to even


def decayed(decay):
    """From 1, by multiplications with decay: the first step below the normal numbers, and where it stays."""
    decay = Fraction(struct.unpack("f", struct.pack("f", decay))[0])
    x, step, subnormal_at = Fraction(1), 0, None
    while (after := fp32(decay * x)) != x:
        x, step = after, step + 1
        assert x == Fraction(struct.unpack("f", struct.pack("f", float(x)))[0])
        if subnormal_at is None and x < SMALLEST_NORMAL:
            subnormal_at = step
    return subnormal_at, x / SMALLEST


def stays_at():
    subnormal_at, units = decayed(0.9)
    assert subnormal_at == math.ceil(126 / math.log2(1 / 0.9))
    # The largest number of units that rounding brings back to itself.
    assert units == max(k for k in range(100) if round(Fraction(9, 10) * k) == k)
    return [subnormal_at, int(units)]


def reaches_zero():
    decays = (0.4, 0.6, 0.9, 0.99)
    zero = [decay for decay in decays if decayed(decay)[1] == 0]
    assert zero == [0.4]
    return str(zero[0])


def sets_of_the_trace():
    """Sets of a cache of 32 KiB, 8 ways and lines of 64 bytes that 256 stores of 256 bytes touch."""
    sets = 32768 // 8 // 64
    touched = lambda distance: len({(row * distance + byte) // 64 % sets for row in range(256) for byte in range(0, 256, 64)})
    return [touched(4096), touched(4160)]


def rows_in_the_list():
    """Expected distinct keys among the last n of evenly drawn ones."""
    keys = 2048
    distinct = lambda n: keys * (1 - (1 - 1 / keys) ** n)
    # By counting: each further token is new with the share of keys not seen.
    seen = 0.0
    for _ in range(4096):
        seen += 1 - seen / keys
    assert abs(seen - distinct(4096)) < 1e-6
    return [distinct(4096), distinct(150)]


def differs_in_arithmetic():
    """The pair of programs that differ in nothing but whether subnormal numbers are computed."""
    programs = {"as_found": ("subnormal", "stay"), "flush_to_zero": ("zero", "leave"), "flushed_but_kept": ("zero", "stay"),
                "retired_when_small": ("subnormal", "leave")}
    pairs = [("as_found", "flush_to_zero"), ("as_found", "flushed_but_kept"), ("as_found", "retired_when_small")]
    found = [f"{a} and {b}" for a, b in pairs
             if programs[a][0] != programs[b][0] and programs[a][1] == programs[b][1]]
    assert len(found) == 1
    return found[0]


def largest_gains():
    """What any correct program may at most gain over two baselines, by their shares of the limit in the record."""
    from records import Records

    records = Records(program=pathlib.Path("/nonexistent"))
    return [1 / records.number("h200:ch08/histogram/global_atomics?distinct=256&n=268435456 share"),
            1 / records.number("h200:ch08/loop_unrolling/rolled?m=32768 share")]
