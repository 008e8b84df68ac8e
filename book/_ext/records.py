"""The book's numbers: looks up what the records under results/ say.

A reference names a machine, a variant at a point, and a field:
    cpu:ch02/stride/row_order?n=2048 ratio
The point may be left out where the record has one point, and axes may where one point matches. A reference that
matches nothing is an error that names the nearest; nothing is ever guessed.
"""
import ast
import difflib
import json
import math
import operator
import os
import pathlib
import re
import subprocess
import sys

import ledger

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
EVALUATIONS = ROOT / "models/tiny"
LISTINGS = ROOT / "book/listings"
PROGRAM = pathlib.Path(os.environ.get("FATHOM_PROGRAM") or ROOT / "build/release/fathom")  # `fathom book` names itself
REFERENCE = {"cpu": "epyc-zen4-2c", "h200": "h200"}
REFERENCES = re.compile(r'[\w-]+:[^\s"]+ \w+')  # in a text
TITLES = {"epyc-zen4-2c": "2 cores of a Zen 4 (EPYC, virtual)", "epyc-zen3-2c": "2 cores of a Zen 3 (EPYC, virtual)", "h200": "one H200", "h100-80gb-hbm3": "H100, 80 GB"}


def readers_folder():
    """Where `fathom run --book` keeps what the reader measured (readers_results() of src/cli/expectations.cpp)."""
    data = os.environ.get("XDG_DATA_HOME", "")
    return pathlib.Path(data if data.startswith("/") else pathlib.Path.home() / ".local/share") / "fathom/results"


class Unknown(ValueError):
    """A reference that names nothing."""


def unknown(what, name, known):
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.3)
    return Unknown(f"no {what} '{name}'" + (f"; nearest: {', '.join(near)}" if near else ""))


def value_text(value):
    return str(value) if not isinstance(value, float) or value % 1 else str(int(value))


class Records:
    def __init__(self, results=RESULTS, program=PROGRAM):
        self.files, self.paths = {}, {}  # (machine, experiment) -> file, and where it lies
        self.used = set()  # paths of the records that were asked for
        for path in sorted(results.glob("*/**/*.json")):
            self.add(path.relative_to(results).parts[0], path)
        self.today = self._hashes(program)

    def add(self, machine, path):
        file = json.loads(path.read_text())
        if str(file.get("schema", "")).startswith("fathom.results/"):
            for experiment in file["experiments"]:
                self.files[machine, experiment["id"]], self.paths[machine, experiment["id"]] = file, path

    @staticmethod
    def _hashes(program):
        """Hashes of today's sources by experiment; empty without a built program."""
        if program is None or not program.exists():
            return {}
        listed = subprocess.run([program, "list", "--json"], capture_output=True, text=True)
        if listed.returncode != 0:
            return {}
        return {e["id"]: e["source_hash"] for e in json.loads(listed.stdout)["experiments"]}

    def machine(self, name):
        machine = REFERENCE.get(name, name)
        machines = {m for m, _ in self.files}
        if machine not in machines:
            raise unknown("machine", name, sorted(machines | set(REFERENCE)))
        return machine

    def experiment(self, machine, experiment):
        of = {e for m, e in self.files if m == machine}
        if experiment not in of:
            raise unknown(f"record on {machine}", experiment, sorted(of))
        file = self.files[machine, experiment]
        self.used.add(str(self.paths[machine, experiment]))
        return next(e for e in file["experiments"] if e["id"] == experiment)

    def date(self, machine, experiment):
        return self.files[machine, experiment]["provenance"]["written_at"][:10]

    def quick(self, machine, experiment):
        """Whether the record is of `run --quick`."""
        return bool(self.files[machine, experiment].get("manifest", {}).get("quick"))

    def stale(self, machine, experiment):
        """Whether the sources have changed since the record; None where no program says."""
        if experiment not in self.today:
            return None if not self.today else True
        return self.today[experiment] != self.experiment(machine, experiment).get("source_hash")

    def any_stale(self, text):
        """Whether one of the references in a text is to a stale record."""
        return any(self.stale(*self.parse(reference)[:2]) for reference in REFERENCES.findall(text))

    def points(self, machine, experiment, at):
        points = self.experiment(machine, experiment)["points"]
        kept = [p for p in points if all(value_text(p["at"].get(k)) == v for k, v in at.items())]
        if not kept:
            raise unknown(f"point of {experiment} on {machine}", "&".join(f"{k}={v}" for k, v in at.items()),
                          ["&".join(f"{k}={value_text(v)}" for k, v in p["at"].items()) for p in points])
        return kept

    def point(self, machine, experiment, at):
        points = self.points(machine, experiment, at)
        if len(points) > 1:
            raise Unknown(f"{experiment} on {machine} has {len(points)} points that match; say which, such as ?"
                          + "&".join(f"{k}={value_text(v)}" for k, v in points[0]["at"].items()))
        return points[0]

    def variant(self, machine, experiment, variant, at):
        variants = {v["id"]: v for v in self.point(machine, experiment, at)["variants"]}
        if variant not in variants:
            raise unknown(f"variant of {experiment}", variant, list(variants))
        found = variants[variant]
        if found["status"] != "ok":
            raise Unknown(f"{experiment}/{variant} was not measured on {machine}: {found['status']}")
        return found

    def parse(self, reference):
        try:
            where, field = reference.split()
            machine, rest = where.split(":", 1)
        except ValueError:
            raise Unknown(f"'{reference}' is not of the form cpu:ch02/stride/row_order?n=2048 ratio") from None
        path, _, query = rest.partition("?")
        experiment, _, variant = path.rpartition("/")
        at = dict(part.split("=", 1) for part in query.split("&")) if query else {}
        return self.machine(machine), experiment, variant, at, field

    def ceilings(self, machine, experiments=None):
        """Of each limit that a machine's records name, the rates that the controls of its points had."""
        rates = {}
        for of, experiment in sorted(self.files):
            if of == machine and (experiments is None or experiment in experiments):
                for point in self.experiment(of, experiment)["points"]:
                    for name, rate in sorted({limit_of(point, v) for v in point["variants"] if v.get("limit_rate")}):
                        rates.setdefault(name, []).append(rate)
        return rates

    def number(self, reference):
        """A reference's value, in SI units (shares as fractions)."""
        machine, experiment, variant, at, field = self.parse(reference)
        found = self.variant(machine, experiment, variant, at)
        if field in OF_A_POINT:
            return OF_A_POINT[field](self.point(machine, experiment, at))
        return value_of(found, field)

    def text(self, reference):
        machine, experiment, variant, at, field = self.parse(reference)
        found = self.variant(machine, experiment, variant, at)
        if field == "ratio_interval":
            ratio = found.get("ratio") or no_field(field)
            return f"{digits(ratio['lo'])} to {digits(ratio['hi'])}"
        if field == "time_interval":
            return " to ".join(with_unit(found["time_ns"][end] * 1e-9, "time") for end in ("lo", "hi"))
        if field == "rounds":
            return str(self.number(reference))
        return with_unit(self.number(reference), field)

    def calculate(self, expression):
        """`num("...") / num("...") | .2f | GB/s`: arithmetic on references and on counts, a format, and a unit."""
        parts = [part.strip() for part in expression.split("|")]
        lookups = {"num": self.number, "count": self.count, "typical": self.typical, "lines": self.lines, "output": self.output}
        value = evaluate(ast.parse(parts[0], mode="eval").body, lookups)
        text = format(value, parts[1]) if len(parts) > 1 and parts[1] else digits(value)
        return value, text + (f"\u202f{parts[2]}" if len(parts) > 2 else "")

    def count(self, query):
        """How many predictions, verdicts or controls of all records are as the query's words say (ledger.py)."""
        return len(self._chosen(ledger.chosen, query))

    def typical(self, query):
        """The median factor between what was predicted and what was measured."""
        return self._chosen(ledger.typical_factor, query)

    def lines(self, path):
        """Lines of a source file that are not empty."""
        if not (ROOT / path).is_file():
            raise Unknown(f"no file {path}")
        self.used.add(str(ROOT / path))
        return sum(bool(line.strip()) for line in (ROOT / path).read_text().splitlines())

    def output(self, text):
        """`ch21 skid.samples`: a number that a chapter's own programs printed, from book/listings/ch21/measured.json."""
        chapter, _, field = text.partition(" ")
        return number_in(self.measured(chapter), field.strip(), f"book/listings/{chapter}/measured.json")

    def measured(self, chapter):
        """What a chapter's own programs printed, with the machine and the day."""
        path = LISTINGS / chapter / "measured.json"
        if not path.is_file():
            raise unknown("measured listing", chapter, sorted(found.parent.name for found in LISTINGS.glob("*/measured.json")))
        self.used.add(str(path))
        return json.loads(path.read_text())

    def _chosen(self, ask, query):
        try:
            return ask(self, query)
        except ValueError as error:
            raise Unknown(str(error)) from None

    def computed(self, text):
        """A text with the values of its {calc} roles."""
        return re.sub(r"\{calc\}`([^`]*)`", lambda found: self.calculate(found[1])[1], text)


class ReadersRecords(Records):
    """What the reader measured. A broken file is no reason to have no book: it is named and left out."""

    def __init__(self, results=None, program=PROGRAM):
        super().__init__(results or readers_folder(), program)

    def add(self, machine, path):
        try:
            super().add(machine, path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            print(f"{path} is no record and is left out of the book; remove it: {error!r}", file=sys.stderr)

    def machines(self, experiments):
        return sorted({machine for machine, experiment in self.files if experiment in experiments})

    def stamps(self, experiment):
        """Changes when a machine's record of the experiment comes, changes or goes."""
        return sorted((machine, self.paths[machine, e].stat().st_mtime_ns) for machine, e in self.files if e == experiment)


SUPERSCRIPTS = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")


def evaluation(name, field, folder=EVALUATIONS):
    """What `fathom model eval` found: a field of eval_NAME.json, as `divergence.kl`."""
    known = sorted(path.stem.removeprefix("eval_") for path in folder.glob("eval_*.json"))
    if name not in known:
        raise unknown("evaluation", name, known)
    return number_in(json.loads((folder / f"eval_{name}.json").read_text()), field, f"eval_{name}.json")


def value_in(found, field, file):
    """What stands in a file's JSON under `divergence.kl`."""
    for i, part in enumerate(parts := field.split(".")):
        if not isinstance(found, dict) or part not in found:
            raise unknown(f"field of {file}", field,
                          [".".join([*parts[:i], key]) for key in (found if isinstance(found, dict) else ())])
        found = found[part]
    return found


def number_in(found, field, file):
    found = value_in(found, field, file)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise Unknown(f"{field} of {file} is no number")
    return found


def evaluation_text(value):
    """A count as it is, and else two significant digits, small numbers with a power of ten."""
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f")
    if value == 0 or abs(value) >= 1e-4:
        return f"{value:.2g}".replace("-", "\u2212")
    mantissa, _, power = f"{value:.1e}".partition("e")
    return (mantissa + "\u202f·\u202f10").replace("-", "\u2212") + str(int(power)).translate(SUPERSCRIPTS)


# What all variants of a point share; the control is the A/A control's interval.
OF_A_POINT = {"rounds": lambda point: point["rounds"],
              "control_lo": lambda point: (point.get("aa") or no_field("control_lo"))["lo"],
              "control_hi": lambda point: (point.get("aa") or no_field("control_hi"))["hi"]}
TIMES = {"time": "median", "min": "min", "p10": "p10", "p90": "p90"}
RATES = {"bytes_per_s": "B/s", "flops_per_s": "FLOP/s"}
RATIOS = {"ratio": "median", "ratio_lo": "lo", "ratio_hi": "hi"}


def limit_of(point, variant):
    """A variant's limit in words, and the rate of its control. The point's words name the threads of its busiest variant,
    and behind `of libraries` the limit of those."""
    ours, _, of_libraries = point["limit"].partition("; of libraries: ")
    words = of_libraries if of_libraries and variant["kind"] == "library" else ours
    threads = variant["threads"]
    return re.sub(r"\d+ threads?$", f"{threads} thread" + "s" * (threads > 1), words), variant["limit_rate"]


def no_field(field):
    raise Unknown(f"this variant has no {field} (a baseline has no ratio, and some limits give no share)")


def value_of(variant, field):
    time = variant["time_ns"]["median"] * 1e-9
    metrics = variant.get("metrics") or {}
    if field in TIMES:
        return variant["time_ns"][TIMES[field]] * 1e-9
    if field == "prepare":  # what was done once, before the first timed call
        return variant["prepare_ns"] * 1e-9 if variant.get("prepare_ns") is not None else no_field(field)
    if field in RATIOS:
        return (variant.get("ratio") or no_field(field))[RATIOS[field]]
    if field == "share":
        share = variant.get("share_of_limit")
        return share if share is not None else no_field(field)
    if field == "bytes_per_s":
        moved = (variant.get("bytes_read") or 0) + (variant.get("bytes_written") or 0)
        return moved / time if moved else no_field(field)
    if field == "flops_per_s":
        return variant["flops"] / time if variant.get("flops") else no_field(field)
    if field == "max_error":
        return variant["checked"]["max_error"]
    if field in metrics:
        return metrics[field]["value"]
    raise unknown("field", field, [*TIMES, "time_interval", "prepare", *RATIOS, "ratio_interval", "share", "bytes_per_s", "flops_per_s", "max_error",
                                   *OF_A_POINT, *metrics])


def digits(value):
    """Three significant digits, without an exponent from 0.0001 to 999 999."""
    if value == 0:
        return "0"
    value = float(f"{value:.3g}")
    places = 2 - math.floor(math.log10(abs(value)))
    if -3 <= places <= 6:
        return f"{value:,.{max(0, places)}f}".replace(",", "\u202f")
    return f"{value:.2e}"


def with_unit(value, field):
    if field in TIMES or field == "prepare":
        for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
            if value >= 0.9995 * size or unit == "ns":
                return f"{digits(value / size)}\u202f{unit}"
    if field == "share":
        return f"{digits(100 * value)}\u202f%"
    if field in RATES:
        name = RATES[field]
        for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("", 1)):
            if value >= 0.9995 * size or not prefix:
                return f"{digits(value / size)}\u202f{prefix}{name}"
    return digits(value)


OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
             ast.Pow: operator.pow, ast.USub: operator.neg}
FUNCTIONS = {"log2": math.log2, "sqrt": math.sqrt, "ceil": math.ceil, "floor": math.floor, "min": min, "max": max}


def evaluate(node, lookups):
    """Arithmetic and lookups as num("reference"); nothing else of Python."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](evaluate(node.left, lookups), evaluate(node.right, lookups))
    if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](evaluate(node.operand, lookups))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in lookups and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
            return lookups[node.func.id](node.args[0].value)
        if node.func.id in FUNCTIONS:
            return FUNCTIONS[node.func.id](*(evaluate(argument, lookups) for argument in node.args))
    known = ", ".join([*(f'{name}("...")' for name in lookups), *FUNCTIONS])
    raise Unknown(f"calc knows numbers, + - * / ** and {known}; not '{ast.unparse(node)}'")
