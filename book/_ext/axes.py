"""Axes of the figures: where a value stands, which ticks there are, and what they say."""
import math
import re

from records import digits, with_unit


class Log:
    def __init__(self, low, high, begin, end):
        self.low, self.high = math.log10(low), math.log10(high)
        if self.high - self.low < 0.05:
            self.low, self.high = self.low - 0.05, self.high + 0.05
        self.begin, self.end = begin, end

    def __call__(self, value):
        return self.begin + (math.log10(value) - self.low) / (self.high - self.low) * (self.end - self.begin)

    def at(self, place):
        return 10 ** (self.low + (place - self.begin) / (self.end - self.begin) * (self.high - self.low))

    def ticks(self):
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        steps = (1,) if self.high - self.low > 2.5 else (1, 2, 5) if self.high - self.low > 0.7 else (1, 1.5, 2, 3, 4, 5, 7)
        return [s * 10.0**d for d in decades for s in steps if self.low - 1e-9 <= math.log10(s * 10.0**d) <= self.high + 1e-9]


class Linear:
    def __init__(self, high, begin, end):
        self.high, self.begin, self.end = high, begin, end

    def __call__(self, value):
        return self.begin + value / self.high * (self.end - self.begin)

    def ticks(self):
        step = 10 ** math.floor(math.log10(self.high))
        step = next(s for s in (step / 5, step / 2, step, 2 * step) if self.high / s <= 6)
        return [i * step for i in range(int(self.high / step + 1e-9) + 1)]


def tick_text(value, field):
    """A round number, without the zeros that a measured one would keep."""
    text = f"{round(100 * value)}\u202f%" if field == "share" else with_unit(value, field)
    return re.sub(r"\.0+(?!\d)|(\.\d*?)0+(?!\d)", r"\1", text)


def short(x):
    for size, unit in ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")):
        if isinstance(x, int) and x >= size and x % size == 0:
            return f"{x // size}\u202f{unit}"
    return f"{x:,}".replace(",", "\u202f") if isinstance(x, int) else digits(x)
