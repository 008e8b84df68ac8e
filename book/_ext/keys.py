"""Whether an exercise's worked solution states the key that its solver computed.

The solution is written by hand and the key is computed, so a slip in either of them fails the build.
"""
import re

# How a solution writes a number: 16\\,777\\,216  -0.25  10^{-6}  2^{24}  3/8  \\frac{1}{8}  3 \\cdot 10^5, and 12.5\\,\\%.
DECIMAL = r"\d+(?:\.\d+)?"
WORDS = {"none": 0} | {word: number for number, word in enumerate(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split())}

ORDINALS = "first second third fourth fifth".split()


def plain(text):
    """Without the spaces within numbers and TeX's braces around them."""
    text = re.sub(r"(?<=\d)(?:\\[,;!]|\{,\}|\u202f|\u00a0|,(?=\d{3}\b))(?=\d)", "", text)
    text = re.sub(r"\\[td]?frac\s*(?:\{([^{}]*)\}|(\d))\s*(?:\{([^{}]*)\}|(\d))", lambda m: f"{m[1] or m[2]}/{m[3] or m[4]}", text)
    text = re.sub(r"\^\{\s*([-+]?\d+)\s*\}", r"^\1", text)
    return re.sub(r"\\(?:cdot|times)|·|×", "*", text).replace("\u2212", "-").replace("\\%", "%")


def stated(solution):
    """(value, half of its last digit) of each number in a text."""
    text = plain(solution)
    for match in re.finditer(rf"({DECIMAL})\s*\*\s*10\^(-?\d+)", text):
        size = 10.0 ** int(match[2])
        yield float(match[1]) * size, last_digit(match[1]) * size
    for match in re.finditer(r"(\d+)\^([-+]?\d{1,3})(?!\d)", text):
        yield float(match[1]) ** int(match[2]), 0.0
    for match in re.finditer(rf"({DECIMAL})\s*/\s*({DECIMAL})", text):
        if float(match[2]):
            yield float(match[1]) / float(match[2]), 0.0
    for match in re.finditer(DECIMAL, text):
        yield float(match[0]), last_digit(match[0])
    for word in re.findall(r"[a-z]+", text.lower()):
        if word in WORDS:
            yield float(WORDS[word]), 0.0


def last_digit(text):
    """Half of the last digit of a decimal, which rounding may have taken; an integer is meant exactly."""
    return 0.5 * 10.0 ** -len(text.partition(".")[2]) if "." in text else 0.0


def states(solution, key, tolerance, options=()):
    """Whether a solution says the key: each of its numbers up to the exercise's tolerance, or of a choice its words or, as
    its first words, its place among the options ("The third: ...")."""
    if isinstance(key, str):
        said = words(solution)
        places = [*ORDINALS[: len(options) - 1], "last"]
        if said[:1] == ["the"] and said[1:2] and said[1] in places:
            return options.index(key) == places.index(said[1])
        return " ".join(words(key)) in " ".join(said)
    found = list(stated(solution))
    return all(any(abs(abs(value) - abs(number)) <= max(tolerance * abs(number), off) + 1e-9 * abs(number) for value, off in found)
               for number in (key if isinstance(key, (list, tuple)) else [key]))


def words(text):
    return [word.strip(".") for word in re.findall(r"[\w.+-]+", re.sub(r"[$`*\\{}]", "", text).lower())]
