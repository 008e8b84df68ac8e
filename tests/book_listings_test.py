#!/usr/bin/env python3
"""Compiles the listings of chapters 10, 15, 21 and 23 and interprets those of 14. Of 10 and 23 it checks what the chapters say that
g++ makes of them, of 14 that the lab's tile programs are right and planted mistakes are found, of 15 what they print, of 21 what
profilers say of them and does not depend on the hour.

usage: book_listings_test.py [--write]     (--write makes the tables and the code that chapters 10, 14 and 23 include, and the numbers
                                            of 15; book/listings/ch21 has a program of its own for what it prints, measure.py)
Exit code 77 (a skip for CTest) where g++ is missing, is another version than the tables name, or the machine is no x86-64.
"""
import collections
import concurrent.futures
import functools
import importlib.util
import json
import math
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
LISTINGS = ROOT / "book/listings"
FOLDER = LISTINGS / "ch10"
FLAGS = ["-std=c++20", "-O3", "-march=x86-64-v3"]  # as the lab's experiments
ANY_ORDER = ["-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math"]  # what -fassociative-math asks for

IDENTITIES = [("factor", "`a * c + b * c`", "`(a + b) * c`"), ("regroup", "`(x + 1) + 2`", "`x + 3`"),
              ("cube", "`x*x*x + 3*x*x + 3*x + 1`", "`(x+1)*(x+1)*(x+1)`"),
              ("cancel", "`x + y - y`", "`x`"), ("negate", "`-(x - y)`", "`y - x`"), ("zero", "`0 * x`", "`0`"),
              ("same", "`x == x`", "`true`"), ("plus_zero", "`x + 0`", "`x`"), ("minus_zero", "`x - 0`", "`x`"),
              ("twice", "`2 * x`", "`x + x`"), ("there_and_back", "`x * 2 / 2`", "`x`"), ("larger", "`x + 1 > x`", "`true`")]
LOOPS = [("sum_of_ints", "`sum += a[i]`, integers"), ("sum_of_floats", "`sum += a[i]`, floats"),
         ("sum_in_any_order", "the same, after `omp simd reduction`"),
         ("largest_int", "`top = a[i] > top ? a[i] : top`, integers"), ("largest_float", "the same, floats"),
         ("add_offset", "`out[i] = x[i] + *offset`"), ("add_offset_promised", "the same, with `__restrict__`"),
         ("fill_floats", "`out[i] = 1` for `i < *n`, floats"), ("fill_ints", "the same, integers"),
         ("double_from_int", "`a[from + i] *= 2`, `int` index"), ("double_from_unsigned", "the same, `unsigned` index"),
         ("one_before", "`a[i] = a[i - 1] + b[i]`"), ("one_after", "`a[i] = a[i + 1] + b[i]`"),
         ("eight_before", "`a[i] = a[i - 8] + b[i]`")]
NESTS = [("product_of_ints", [], "product, integers", "$(0,0,1)$"), ("product_of_floats", [], "product, floats", "$(0,0,1)$"),
         ("product_of_floats", ANY_ORDER, "the same, sums in any order allowed", "$(0,0,1)$"),
         ("from_above", [], "`c[i][j] = c[i - 1][j] + 1`", "$(0,1)$"),
         ("from_above_left", [], "`c[i][j] = c[i - 1][j - 1] + 1`", "$(1,1)$"),
         ("from_above_right", [], "`c[i][j] = c[i - 1][j + 1] + 1`", "$(1,-1)$")]


# Name in products.cpp, operations, zero and one, what an edge is, what the sum over walks says.
SEMIRINGS = [("plus_times", r"$+, \times$", r"$0, 1$", "1", "the number of walks"),
             ("min_plus", r"$\min, +$", r"$\infty, 0$", "a length", "the shortest walk"),
             ("max_plus", r"$\max, +$", r"$-\infty, 0$", "a length", "the longest walk"),
             ("max_times", r"$\max, \times$", r"$0, 1$", "a probability", "the likeliest walk"),
             ("max_min", r"$\max, \min$", r"$0, \infty$", "a width", "the widest walk"),
             ("or_and", "or, and", r"$0, 1$", "1", "whether there is a walk")]


def side_by_side(function, values):
    """Like map, on all CPUs, for what waits for other programs."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(function, values))


def version():
    return subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()


def compiled(name, *flags):
    """The instructions of each function of a listing, and the lines of g++'s report by function."""
    source = FOLDER / f"{name}.cpp"
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "code.s"
        run = subprocess.run(["g++", "-S", "-fno-asynchronous-unwind-tables", "-fopenmp-simd", "-fopt-info-optimized", *flags,
                              str(source), "-o", str(out)], capture_output=True, text=True, check=True)
        text = out.read_text()
    code, function = {}, None
    for line in text.splitlines():
        if label := re.match(r"_Z(\d+)(\w+):", line):
            function = label[2][: int(label[1])]
            code[function] = []
        elif function and (instruction := re.match(r"\t([a-z]\w*)(?:\s+(.*))?$", line)):
            code[function].append((instruction[1], instruction[2] or ""))
    starts = {i: match[1] for i, line in enumerate(source.read_text().splitlines(), 1)
              if (match := re.match(r"\w+ (\w+)\(", line))}
    report = {function: [] for function in starts.values()}
    for line, message in re.findall(r"\.cpp:(\d+):\d+: optimized: *(.*)", run.stderr):
        report[starts[max(start for start in starts if start <= int(line))]].append(message)
    return code, report


def names(instructions):
    return sorted(name for name, _ in instructions)


def divides(instructions):
    return any("div" in name for name, _ in instructions)


def adds_in_vectors(instructions):
    """Whether a whole vector of eight is added, compared for a maximum, or stored."""
    return any(re.match(r"v(addps|paddd|pmaxsd|maxps|movups|movaps)$", name) and "%ymm" in operands
               and (not name.startswith("vmov") or operands.endswith(")")) for name, operands in instructions)


def identities():
    types = ("unsigned", "int", "float")
    code = {t: compiled("identities", *FLAGS, f"-DT={t}")[0] for t in types}
    rows = []
    for name, before, after in IDENTITIES:
        rows.append([before, after, *("yes" if names(code[t][name]) == names(code[t][name + "_as"]) else "no" for t in types)])
    for name, before in (("eighth", "`x / 8`"), ("tenth", "`x / 10`")):
        rows.append([before, "no division", *("no" if divides(code[t][name]) else "yes" for t in types)])
    return table(["written", "made into", "`unsigned`", "`int`", "`float`"], rows)


def loops():
    code, report = compiled("loops", *FLAGS)
    rows = []
    for name, text in LOOPS:
        vectors = any("loop vectorized" in line for line in report[name]) and adds_in_vectors(code[name])
        tested = any("possible aliasing" in line for line in report[name])
        rows.append([text, "yes, behind a test for overlap" if vectors and tested else "yes" if vectors else "no"])
    return table(["loop", "eight at a time"], rows)


def nests():
    rows = []
    for name, flags, text, distance in NESTS:
        swapped = any("interchanged" in line for line in compiled("nests", *FLAGS, *flags)[1][name])
        rows.append([text, distance, "yes" if swapped else "no"])
    return table(["nest", "distance", "turned around"], rows)


def rows_of(head, rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)) + "\n"


def table(head, rows):
    return rows_of(head, rows) + f"\ng++ {version()} with `{' '.join(FLAGS[1:])}`, read from its code.\n"


def divisions():
    lines = [f"# g++ {version()} with {' '.join(FLAGS[1:])}"]
    for name, of in (("tenth", "unsigned"), ("eighth", "float"), ("tenth", "float")):
        code = compiled("identities", *FLAGS, f"-DT={of}")[0][name]
        lines += [f"{name}({of}):", *(f"  {name:<7} {operands}".rstrip() for name, operands in code)]
    return "\n".join(lines) + "\n"


def inner_loops():
    """The vector arithmetic in the innermost loop of each product, counted by instruction."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "code.s"
        subprocess.run(["g++", "-S", *FLAGS, "-I", str(ROOT / "src"), str(LISTINGS / "ch23/products.cpp"), "-o", str(out)], check=True)
        text = out.read_text()
    counts = {}
    for name, *_ in SEMIRINGS:
        body = text.partition(f"\n_Z{len(name)}{name}")[2].partition("\n\t.size")[0]
        # What lies between a label and a jump back to it, without another label or jump.
        loops = [found[2] for found in re.finditer(r"^(\.L\d+):\n((?:\t(?!j)[^\n]*\n)*)\tj\w+\t\1$", body, re.M)]
        vectors = [re.findall(r"^\t(v(?!mov|broadcast|pbroadcast)\w+)\t.*%ymm", loop, re.M) for loop in loops]
        counts[name] = collections.Counter(re.sub(r"(vfmadd)\d+", r"\1", n) for n in max(vectors, key=len))
    return counts


def products():
    counts = inner_loops()
    rows = [[operations, ", ".join(f"{count} `{instruction}`" for instruction, count in sorted(counts[name].items())),
             "256 bits" if name == "or_and" else "8 floats"] for name, operations, *_ in SEMIRINGS]
    return table([r"$\oplus, \otimes$", "arithmetic of the inner loop", "each on"], rows)


def run(name):
    """What a program of the listings of chapter 23 prints."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "program"
        subprocess.run(["g++", *FLAGS, "-Wall", "-Wextra", "-Werror", "-I", str(ROOT / "src"), str(LISTINGS / f"ch23/{name}.cpp"),
                        str(ROOT / "src/book/semiring_model.cpp"), "-o", str(out)], check=True)
        return subprocess.run([str(out)], capture_output=True, text=True, check=True).stdout


def answers():
    said = run("answers").split()
    said[-1] = {"1": "yes", "0": "no"}[said[-1]]
    return rows_of([r"$\oplus, \otimes$", "zero, one", "an edge is", "the sum says", "A to F"],
                   [[*about, answer] for (_, *about), answer in zip(SEMIRINGS, said, strict=True)])


def tile_programs():
    """The module that runs chapter 14's tile programs."""
    if str(LISTINGS / "ch14") not in sys.path:
        sys.path.insert(0, str(LISTINGS / "ch14"))
    return importlib.import_module("masks")


MADE = {"ch10/identities.txt": identities, "ch10/loops.txt": loops, "ch10/nests.txt": nests, "ch10/divisions.s": divisions,
        "ch23/products.txt": products}  # of this compiler
def masks():
    return tile_programs().table()


PRINTED = {"ch14/masks.txt": masks, "ch23/answers.txt": answers}  # the same of any


class Listings(unittest.TestCase):
    def test_what_the_page_includes(self):
        for name, make in (MADE | PRINTED).items():
            self.assertEqual((LISTINGS / name).read_text(), make(), f"{name}: tests/book_listings_test.py --write")

    def test_the_answers_are_those_of_all_walks(self):
        """The graph's walks one by one, read from the listing and summed without a semiring."""
        edges = {(e[0], e[1]): int(e[2]) for e in re.findall(r'"([A-F]{2}[1-9])"', (LISTINGS / "ch23/answers.cpp").read_text())}
        walks = []

        def walk(at, weights):
            if at == "F":
                walks.append(weights)
            for (a, b), weight in edges.items():
                if a == at and len(weights) < 4:
                    walk(b, [*weights, weight])

        walk("A", [])
        right = [len(walks), min(map(sum, walks)), max(map(sum, walks)), max(math.prod(w / 10 for w in walk) for walk in walks),
                 max(map(min, walks)), 1]
        for said, number in zip(map(float, run("answers").split()), right, strict=True):
            self.assertAlmostEqual(said, number, places=6)

    def test_each_semiring_gets_the_same_loop(self):
        """Two operations for each element, in two instructions, or one where the machine has one for both."""
        for name, counts in inner_loops().items():
            with self.subTest(semiring=name):
                self.assertEqual(sorted(counts.values()), [2] if name == "plus_times" else [2, 2])

    def test_products_and_sums_become_an_fma_unasked(self):
        self.assertTrue(any(name.startswith("vfmadd") for name, _ in compiled("identities", *FLAGS, "-DT=float")[0]["multiply_add"]))
        kept = compiled("identities", *FLAGS, "-DT=float", "-ffp-contract=off")[0]["multiply_add"]
        self.assertEqual(names(kept), ["ret", "vaddss", "vmulss"])

    def test_the_report_calls_the_sum_in_order_vectorized(self):
        code, report = compiled("loops", *FLAGS)
        self.assertTrue(any("loop vectorized" in line for line in report["sum_of_floats"]))
        self.assertFalse(adds_in_vectors(code["sum_of_floats"]))
        self.assertIn("vaddss", names(code["sum_of_floats"]))

    def test_the_flag_that_allows_any_order_gives_vectors(self):
        code, _ = compiled("loops", *FLAGS, *ANY_ORDER)
        self.assertTrue(adds_in_vectors(code["sum_of_floats"]))
        self.assertFalse(adds_in_vectors(compiled("loops", *FLAGS, "-fno-trapping-math")[0]["sum_of_floats"]))

    def test_a_sum_in_memory_needs_both_promises(self):
        in_order, any_order = compiled("loops", *FLAGS)[0], compiled("loops", *FLAGS, *ANY_ORDER)[0]
        for code in (in_order["product"], any_order["product"]):
            self.assertFalse(any("%ymm" in operands for _, operands in code))
        self.assertEqual(names(in_order["product"]), names(any_order["product"]))
        of_eight = {n for n, operands in in_order["product_promised"] if "%ymm" in operands}
        self.assertIn("vmulps", of_eight)
        self.assertFalse(adds_in_vectors(in_order["product_promised"]))
        self.assertTrue(any(n.startswith("vfmadd") and n.endswith("ps") for n, operands in any_order["product_promised"]
                            if "%ymm" in operands))

    def test_with_o2_only_the_pragma_gives_vectors(self):
        report = compiled("loops", "-std=c++20", "-O2", "-march=x86-64-v3")[1]
        self.assertEqual([name for name in report if any("vectorized" in line for line in report[name])], ["sum_in_any_order"])

    def test_a_benchmark_without_a_result_is_empty(self):
        code = compiled("traps", *FLAGS)[0]
        self.assertEqual(names(code["benchmark"]), ["ret"])
        self.assertEqual(names(code["would_overflow"]), ["ret", "xorl"])

    def test_one_library_with_fast_math_flushes_for_all(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "library.cpp").write_text("int library() { return 0; }\n")

            def half(*flags):
                for command in (["-shared", "-fPIC", *flags, "library.cpp", "-o", "library.so"],
                                [FOLDER / "subnormal.cpp", "./library.so", "-o", "program"]):
                    subprocess.run(["g++", "-O2", *command], cwd=folder, check=True)
                return subprocess.run(["./program"], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

            self.assertEqual((half(), half("-ffast-math")), ("1e-38", "0"))


class TilePrograms(unittest.TestCase):
    """Chapter 14: the lab's Triton sources on the book's interpreter, against the formulas, as they are and with a mistake in them."""

    @classmethod
    def setUpClass(cls):
        cls.masks, cls.tiles = tile_programs(), tile_programs().tiles

    def rows(self, count, columns):
        """Negative numbers, among which a lane of 0 would be the largest."""
        return [[-1.5 - math.sin(7 * i + j) for j in range(columns)] for i in range(count)]

    def softmax(self, rows, change=lambda text: text):
        columns = len(rows[0])
        x, out = (self.tiles.Memory(len(rows), columns, values=values) for values in (sum(rows, []), ()))
        self.tiles.load(self.masks.SOFTMAX, change).bind(types.SimpleNamespace(x=x, out=out))()
        return [out.row(i) for i in range(len(rows))]

    def rmsnorm(self, rows, change=lambda text: text):
        columns = len(rows[0])
        x, y = (self.tiles.Memory(len(rows), columns, values=values) for values in (sum(rows, []), ()))
        weight = self.tiles.Memory(columns, values=[1 + j / 7 for j in range(columns)])
        self.tiles.load(self.masks.RMSNORM, change).bind(types.SimpleNamespace(x=x, weight=weight, y=y, epsilon=0.25))()
        return [y.row(i) for i in range(len(rows))]

    @staticmethod
    def right_softmax(row):
        return [math.exp(v) / sum(map(math.exp, row)) for v in row]

    @staticmethod
    def right_rmsnorm(row):
        root = math.sqrt(sum(v * v for v in row) / len(row) + 0.25)
        return [v * (1 + j / 7) / root for j, v in enumerate(row)]

    def far(self, found, right):
        return max(abs(a - b) for a, b in zip(sum(found, []), sum(right, []), strict=True))

    def test_the_labs_sources_are_right_at_any_length(self):
        for columns in (1, 2, 7, 61, 1000, 1024, 1025):
            rows = self.rows(3, columns)
            self.assertLess(self.far(self.softmax(rows), list(map(self.right_softmax, rows))), 1e-12, columns)
            self.assertLess(self.far(self.rmsnorm(rows), list(map(self.right_rmsnorm, rows))), 1e-12, columns)

    def test_a_wrong_other_is_found(self):
        rows, swapped = self.rows(2, 61), self.masks.swapped
        for change in (swapped(self.masks.MINUS_INFINITY, "other=0.0"), swapped(self.masks.MINUS_INFINITY, "other=-1.0")):
            self.assertGreater(self.far(self.softmax(rows, change), list(map(self.right_softmax, rows))), 1e-3)
        self.assertTrue(math.isnan(self.softmax(rows, swapped(", " + self.masks.MINUS_INFINITY, ""))[0][0]))
        self.assertGreater(self.far(self.rmsnorm(rows, swapped("other=0.0", "other=1.0")), list(map(self.right_rmsnorm, rows))), 1e-3)

    def test_a_missing_mask_leaves_the_array(self):
        with self.assertRaises(self.tiles.Fault):
            self.softmax(self.rows(1, 61), self.masks.swapped("mask=inside, other", "other"))
        with self.assertRaises(self.tiles.Fault):
            self.softmax(self.rows(1, 61), self.masks.swapped(", mask=inside)", ")"))

    def test_a_row_beyond_32_bits(self):
        """The trap of the chapter, with its offset; the last row that still fits is right without the widening."""
        narrow = self.masks.swapped(self.masks.WIDE, "")
        self.assertEqual(self.masks.fault(), "no fault")
        self.assertIn("offset -1673527296 ", self.masks.fault(change=narrow))
        self.assertEqual(self.masks.fault(row=32_767, change=narrow), "no fault")
        self.assertIn("offset -2147483648 ", self.masks.fault(row=32_768, change=narrow))

    def test_a_block_is_a_power_of_two(self):
        memory = self.tiles.Memory(1, 1000)
        with self.assertRaisesRegex(ValueError, "power of 2"):
            self.tiles.load(self.masks.SOFTMAX).plain.one(0, memory, memory, 1000, 1000, BLOCK=1000)

    def test_no_rows_are_no_programs(self):
        empty = self.tiles.Memory(0, 5)
        self.tiles.load(self.masks.SOFTMAX).bind(types.SimpleNamespace(x=empty, out=empty))()
        self.assertEqual(empty.cells, {})


ADAPTED = LISTINGS / "ch15"


@functools.cache
def adapted():
    """What the programs of chapter 15 print: `drift same.error_10 0.1` as {"drift": {"same": {"error_10": 0.1}}}."""
    def printed(source):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "program"
            subprocess.run(["g++", "-std=c++20", "-O2", "-march=x86-64-v3", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-I", str(ROOT / "src"),
                            str(source), "-o", str(out)], check=True)
            return subprocess.run([str(out)], capture_output=True, text=True, check=True).stdout

    found, sources = {}, sorted(ADAPTED.glob("*.cpp"))
    for source, text in zip(sources, side_by_side(printed, sources), strict=True):
        for name, number in map(str.split, text.splitlines()):
            *parts, last = [source.stem, *name.split(".")]
            at = found
            for part in parts:
                at = at.setdefault(part, {})
            at[last] = json.loads(number)
    return json.dumps(found, indent=1) + "\n"


class Adapted(unittest.TestCase):
    """Chapter 15's programs, and what its laws say of the numbers that they print."""

    @classmethod
    def setUpClass(cls):
        cls.found = json.loads(adapted())

    def test_the_page_has_what_they_print(self):
        self.assertEqual((ADAPTED / "measured.json").read_text(), adapted(), "tests/book_listings_test.py --write")

    def test_the_orders_take_what_their_sizes_say(self):
        d, r = 4096, 16
        self.assertEqual(self.found["orders"], {"product_first": d * r * d + d * d, "vector_first": r * d + d * r})

    def test_one_adapter_errs_once_and_new_ones_as_the_root(self):
        same, turns, new = (self.found["drift"][way] for way in ("same", "in_turn", "new"))
        for what in ("error", "changed"):
            self.assertGreater(same[f"{what}_1"], 0)
            self.assertEqual({same[f"{what}_{n}"] for n in (1, 10, 100, 1000)}, {same[f"{what}_1"]})
        for n in (10, 100, 1000):
            self.assertAlmostEqual(math.log(new[f"error_{n}"] / new["error_1"]) / math.log(n), 0.5, delta=0.05)
        self.assertLess(new["error_1"], turns["error_10"])
        self.assertLess(turns["error_1000"], new["error_1000"])
        self.assertLess(turns["changed_1000"], new["changed_1000"])

    def test_what_a_grid_keeps(self):
        grid = self.found["grid"]
        for part in (4, 16, 64, 256):
            spread, kept = grid["int4"]["original"][f"part_{part}"], grid["mxfp4_kept"]["original"][f"part_{part}"]
            self.assertAlmostEqual(spread["noise"] / spread["law"], 1, delta=0.1)
            for found in (spread, kept):
                self.assertAlmostEqual(found["arrives"], 1, delta=0.06)
                self.assertAlmostEqual(found["along"] / found["noise"], (16 / 1024) ** 0.5, delta=0.03)
        for part in (64, 256):  # below half a step nothing is left, if the scale stays
            for name in ("int4", "mxfp4_kept"):
                for what, left in {"arrives": 0, "noise": 1, "along": 1}.items():
                    self.assertAlmostEqual(grid[name]["grid"][f"part_{part}"][what], left, delta=0.002)
            self.assertGreater(grid["mxfp4"]["grid"][f"part_{part}"]["halved"], 0.02)
            self.assertGreater(grid["mxfp4"]["grid"][f"part_{part}"]["noise"], 2)
        self.assertLess(grid["bf16"]["original"]["part_64"]["noise"], 0.2)

    def test_ranks_are_those_of_the_spectra(self):
        def needed(squares, error):
            return next(rank for rank in range(len(squares) + 1) if sum(squares[rank:]) <= error**2 * sum(squares))

        # A random matrix: squared singular values as those of the quarter circle's law.
        edges, points = [0.0], 100_000
        for i in range(points):
            x = 2 * (i + 0.5) / points
            edges.append(edges[-1] + math.sqrt(4 - x * x) / math.pi * 2 / points)
        quantiles, at = [], 0
        for k in range(256):
            while edges[at] < (k + 0.5) / 256:
                at += 1
            quantiles.append((2 * at / points) ** 2)
        for name, squares, off in (("one_over_k", [1 / (k + 1) ** 2 for k in range(256)], 0),
                                   ("four_fifths", [0.64**k for k in range(256)], 0), ("random", quantiles[::-1], 3)):
            for of, error in (("half", 0.5), ("quarter", 0.25), ("tenth", 0.1)):
                self.assertAlmostEqual(self.found["ranks"][name][of], needed(squares, error), delta=off, msg=f"{name} {of}")
        self.assertLessEqual(self.found["ranks"]["sixteen_tokens"]["tenth"], 16)


PROFILED = ROOT / "book/listings/ch21"


class Profiled(unittest.TestCase):
    """Chapter 21's programs, and what its text says of measured.json beside the numbers that it takes from there."""

    @classmethod
    def setUpClass(cls):
        spec = importlib.util.spec_from_file_location("measure", PROFILED / "measure.py")
        cls.measure = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(cls.measure)
        cls.measured = json.loads((PROFILED / "measured.json").read_text())
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

        # All compile.
        names = sorted(source.stem for source in PROFILED.glob("*.cpp"))
        cls.programs = dict(zip(names, side_by_side(lambda name: cls.measure.compiled(name, folder.name, "-Wall", "-Wextra", "-Werror"), names)))

    def test_a_leaf_has_no_frame_and_its_caller_is_skipped(self):
        program = self.programs["callers"]
        frames = {function: any(text.startswith("push %rbp") for _, text in self.measure.instructions(program, function))
                  for function in ("fill", "rarely", "often")}
        self.assertEqual(frames, {"fill": False, "rarely": True, "often": True})
        found = {"tables": {}, "frames": {}}
        for how, stack, count in map(str.split, self.measure.run(program, 150).splitlines()):
            found[how][stack] = int(count)
        self.assertGreater(found["frames"]["main;fill"], 0.9 * sum(found["frames"].values()))
        rarely, often = (found["tables"][f"main;{caller};fill"] for caller in ("rarely", "often"))
        self.assertAlmostEqual(rarely / (rarely + often), 0.75, delta=0.2)

    @unittest.skipUnless(shutil.which("gprof"), "needs gprof")
    def test_gprof_shares_out_by_calls(self):
        calls, times = self.measured["callers"]["calls"], self.measured["callers"]["gprof"]
        self.assertAlmostEqual(times["main;rarely;fill"] / sum(times.values()), calls["rarely"] / sum(calls.values()), delta=0.005)

    def test_the_slow_instruction_stands_before_its_samples(self):
        code = [text for _, text in self.measure.instructions(self.programs["skid"], "divide")]
        shown = re.findall(r"^ *(\d+)   (\S.*)$", (PROFILED / "skid.txt").read_text(), re.M)
        start = next(i for i, text in enumerate(code) if text.startswith("div ")) - 1
        self.assertEqual([text for _, text in shown], code[start : start + len(shown)])
        counts, skid = [int(count) for count, _ in shown], self.measured["skid"]
        self.assertEqual((sum(counts), counts[1], counts[2]), (skid["samples"], 0, skid["next"]))
        self.assertEqual(max(counts), counts[2])

    @unittest.skipUnless(shutil.which("valgrind"), "needs valgrind")
    def test_a_simulated_cache_hits_as_the_widget_says(self):
        found = self.measure.strides(self.folder)
        self.assertEqual(found, self.measured["strides"])
        for stride, hits in {1: 240, 2: 224, 16: 0, 17: 0, 128: 0}.items():
            self.assertEqual(found[f"stride{stride}"], {"reads": 256, "misses": 256 - hits}, f"stride {stride}")

    @unittest.skipUnless(shutil.which("valgrind"), "needs valgrind")
    def test_counted_instructions_are_the_same_each_time(self):
        # Callgrind slows down the making of the list, too: a shorter one, on which the counts do not depend.
        text = (PROFILED / "two_costs.cpp").read_text()
        self.assertEqual(text.count("kPlaces = 1 << 24"), 1)
        source, program = self.folder / "shorter.cpp", self.folder / "shorter"
        source.write_text(text.replace("kPlaces = 1 << 24", "kPlaces = 1 << 16"))
        self.measure.run("g++", *self.measure.FLAGS, "-I", PROFILED, source, "-o", program)
        counted, _ = self.measure.callgrind(program, "short", collect="work", folder=self.folder)
        for name in ("follow", "mix"):
            self.assertEqual(counted[name], self.measured["two_costs"][name]["instructions"])

    def test_what_the_text_says_of_the_numbers(self):
        two, orders, ticks = (self.measured[part] for part in ("two_costs", "shares", "between_ticks"))
        self.assertGreater(two["follow"]["samples"], 5 * two["mix"]["samples"])
        self.assertGreater(two["follow"]["short_s"], two["mix"]["short_s"])
        self.assertLess(two["follow"]["watched_s"], two["mix"]["watched_s"])
        law = (0.1 * 0.9 / orders["samples"]) ** 0.5
        self.assertAlmostEqual(orders["shuffled"]["sd"] / law, 1, delta=0.3)
        self.assertLess(orders["sorted"]["sd"], law / 3)
        self.assertGreater(orders["lockstep"]["sd"], 8 * law)
        seen = [ticks[f"at{where}"] for where in (0, 25, 50, 75)]
        self.assertEqual(sorted(phase["samples"] > 0 for phase in seen), [False, False, False, True])
        self.assertGreater(max(phase["samples"] for phase in seen) * 0.004, 0.9 * ticks["ticks"] * 0.004)
        for phase in seen:
            self.assertAlmostEqual(phase["perf"] / (250 * phase["s"]), 1, delta=0.15)


if __name__ == "__main__":
    if not shutil.which("g++") or platform.machine() != "x86_64":
        print("skipped: needs g++ on an x86-64")
        sys.exit(77)
    if "--write" in sys.argv:
        for file, make_file in (MADE | PRINTED).items():
            (LISTINGS / file).write_text(make_file())
        (ADAPTED / "measured.json").write_text(adapted())
        sys.exit(0)
    named = {re.search(r"g\+\+ ([\d.]+)", (LISTINGS / file).read_text())[1] for file in MADE}
    if named != {version()}:
        print(f"skipped: the page speaks of g++ {', '.join(sorted(named))}, and this is {version()}")
        sys.exit(77)
    unittest.main()
