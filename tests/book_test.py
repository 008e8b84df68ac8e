#!/usr/bin/env python3
"""Builds the book and reads it: numbers, typed numbers, exercises, and every page in a browser at two widths.

usage: book_test.py     (BOOK_SCREENS=FOLDER also keeps a picture of each page at both widths, to be looked at)
Exit code 77 (a skip for CTest) where Debian's Sphinx, MyST or clang-14 is missing (packages-book.txt); the browser part is left
out without Chromium, and says so.
"""
import html
import html.parser
import json
import os
import pathlib
import re
import runpy
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as ElementTree
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = sorted([*(ROOT / "book/chapters").glob("*.md"), *(ROOT / "book/cases").glob("*.md")])  # pages with figures and exercises
os.environ["XDG_DATA_HOME"] = "/nowhere"  # whoever runs this has no records of their own
PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's Sphinx
sys.path[:0] = [str(ROOT / "book/_ext"), str(ROOT / "tests")]

from report_browser_test import CHROMIUM, COVERED_WORDS, FAINT_TEXT, OPEN_ALL, PHONE, SIDEWAYS, WIDE, Browser  # noqa: E402

import figures  # noqa: E402
import flame  # noqa: E402
import keys  # noqa: E402
import records  # noqa: E402

# Each is a measured quantity typed by hand. The clean lines beside them hold numbers that are none.
PLANTED = ["It takes 3.4 ns.", "The rate is 4.2 GB/s there.", "That is 2.7 times faster.", "It reaches 84 % of the limit.",
           "A gain of 1.6×.", "In 12 ms it is done.", "It needs 1,300 us.", "The peak is 63 TFLOP/s.", "It makes 770 tokens/s.",
           "The clock is 1.75 GHz."]
CLEAN = ["A line has 64 bytes.", "There are 8 sets of 2 ways.", "Chapter 12 follows.", "The loop runs 1024 times.", "In 2024 it was new.",
         "`3.4 ns` is code.", "$4.2$ is mathematics.", "{given}`4 ns` is assumed."]


# Words of a figure that stand outside of it.
CUT_WORDS = """[...document.querySelectorAll('svg.plot')].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(text => {
    const box = text.getBoundingClientRect();
    return box.left < frame.left - 2 || box.right > frame.right + 2 || box.top < frame.top - 2 || box.bottom > frame.bottom + 2;
  }).map(text => text.textContent);
})"""
# Formulas that would have to be scrolled.
WIDE_FORMULAS = """[...document.querySelectorAll('.math.block > :first-child')].filter(formula => {
  const parts = [...formula.querySelectorAll('.base')].map(part => part.getBoundingClientRect());
  return Math.max(...parts.map(p => p.right)) - Math.min(...parts.map(p => p.left)) > formula.clientWidth + 1;
}).map(formula => formula.querySelector('annotation').textContent)"""
SHOW_ALL = "document.querySelectorAll('button.veil').forEach(button => button.click());" + OPEN_ALL


def sphinx(folder, out, *flags):
    return subprocess.run([PYTHON, "-m", "sphinx", "-q", "-n", "-b", "html", *flags, "-c", str(ROOT / "book"), str(folder), str(out)],
                          capture_output=True, text=True)


class Numbers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.records = records.Records()
        (cls.machine, cls.experiment), file = next(iter(cls.records.files.items()))
        cls.point = next(e for e in file["experiments"] if e["id"] == cls.experiment)["points"][0]
        cls.baseline = cls.point["variants"][0]
        at = "&".join(f"{k}={records.value_text(v)}" for k, v in cls.point["at"].items())
        cls.reference = f"{cls.machine}:{cls.experiment}/{cls.baseline['id']}?{at}"

    def test_a_reference_is_what_the_record_says(self):
        self.assertAlmostEqual(self.records.number(self.reference + " time"), self.baseline["time_ns"]["median"] * 1e-9)

    def test_an_unknown_name_is_refused_and_the_nearest_named(self):
        wrong = self.reference.replace("/" + self.baseline["id"], "/" + self.baseline["id"] + "x")
        with self.assertRaisesRegex(records.Unknown, re.escape(self.baseline["id"])):
            self.records.number(wrong + " time")
        for reference in ("nowhere:ch02/stride/x time", f"{self.machine}:ch99/none/x time", self.reference + " speed", "nonsense"):
            with self.assertRaises(records.Unknown, msg=reference):
                self.records.number(reference)

    def test_what_was_prepared_once(self):
        file = json.loads((ROOT / "results/h200/ch09/fused_rmsnorm_gpu.json").read_text())
        point = file["experiments"][0]["points"][0]
        at = "&".join(f"{k}={records.value_text(v)}" for k, v in point["at"].items())
        variants = {v["id"]: v for v in point["variants"]}
        self.assertAlmostEqual(self.records.number(f"h200:ch09/fused_rmsnorm_gpu/triton?{at} prepare"), variants["triton"]["prepare_ns"] * 1e-9)
        self.assertRegex(self.records.text(f"h200:ch09/fused_rmsnorm_gpu/triton?{at} prepare"), "\u202fs$")
        with self.assertRaisesRegex(records.Unknown, "no prepare"):
            self.records.number(f"h200:ch09/fused_rmsnorm_gpu/registers?{at} prepare")

    def test_a_baseline_has_no_ratio(self):
        with self.assertRaisesRegex(records.Unknown, "no ratio"):
            self.records.number(self.reference + " ratio")

    def test_spread_rounds_and_control(self):
        (machine, experiment), file = next((key, file) for key, file in self.records.files.items()
                                           if any(p.get("aa") for e in file["experiments"] for p in e["points"]))
        point = next(p for e in file["experiments"] if e["id"] == experiment for p in e["points"] if p.get("aa"))
        at = "&".join(f"{k}={records.value_text(v)}" for k, v in point["at"].items())
        reference = f"{machine}:{experiment}/{point['baseline']}?{at} "
        time = next(v for v in point["variants"] if v["id"] == point["baseline"])["time_ns"]
        self.assertAlmostEqual(self.records.number(reference + "p90"), time["p90"] * 1e-9)
        self.assertEqual(self.records.number(reference + "control_hi"), point["aa"]["hi"])
        self.assertEqual(self.records.text(reference + "rounds"), str(point["rounds"]))
        self.assertEqual(self.records.text(reference + "time_interval"), " to ".join(
            records.with_unit(time[end] * 1e-9, "time") for end in ("lo", "hi")))

    def test_arithmetic_and_nothing_else(self):
        self.assertEqual(self.records.calculate(f'num("{self.reference} time") / num("{self.reference} time") | .2f | times')[1],
                         "1.00\u202ftimes")
        for expression in ("__import__('os')", "open('x')", "[1]", "num('x')()", "lines('README')"):
            with self.assertRaises((records.Unknown, SyntaxError), msg=expression):
                self.records.calculate(expression)
        self.assertEqual(self.records.calculate('lines("book/_ext/xhtml.py")')[0],
                         sum(line.strip() != "" for line in (ROOT / "book/_ext/xhtml.py").read_text().splitlines()))

    def test_counts_over_all_records(self):
        def variant(name, kind, verdict, share, ratio, text, held):
            return {"id": name, "kind": kind, "status": "ok", "verdict": verdict, "share_of_limit": share,
                    "ratio": {"median": ratio} if ratio else None, "prediction": {"text": text, "held": held} if text else None}

        first = [variant("a", "baseline", None, 0.4, None, "share 0.5", False),
                 variant("b", "optimized", "FASTER", 0.6, 1.5, "ratio >= 1.2", True),
                 variant("c", "optimized", "SLOWER", 0.3, 0.75, "ratio 1.5", False)]
        second = [variant("a", "baseline", None, 0.5, None, "share 0.5", True), variant("b", "optimized", "SAME", 0.5, 1.0, "ratio >= 1.2", False),
                  variant("c", "library", "FASTER", 0.9, 1.8, None, None)]
        points = [{"aa": {"lo": 0.99, "hi": 1.0, "advisory": False}, "stopped": "precision", "variants": first},
                  {"aa": {"lo": 1.01, "hi": 1.05, "advisory": True}, "stopped": "time", "variants": second}]
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "box").mkdir()
            (pathlib.Path(folder) / "box/one.json").write_text(json.dumps(
                {"schema": "fathom.results/1", "experiments": [{"id": "ch01/one", "points": points}]}))
            found = records.Records(pathlib.Path(folder), None)
        for query, count in {"predictions": 5, "predictions held": 2, "declared": 3, "declared failed": 3, "declared held": 2, "controls": 2,
                             "controls advisory": 1, "controls precision": 1, "controls width>=1.02": 1, "verdicts": 4, "verdicts FASTER library": 1,
                             "predictions ratio predicted>=1.2 optimized SLOWER": 1, "predictions value off<0.9": 2, "predictions share off>=1": 1,
                             "box several predictions least": 2}.items():
            self.assertEqual(found.calculate(f'count("{query}")')[0], count, query)
        self.assertAlmostEqual(found.calculate('typical("predictions value")')[0], 1.25)  # of 0.8, 0.5 and 1
        for query in ("", "held", "predictions hold", "controls off<1", "verdicts predicted>=1"):
            with self.assertRaises(records.Unknown, msg=query):
                found.calculate(f'count("{query}")')

    def test_what_a_chapters_programs_printed(self):
        file = json.loads((ROOT / "book/listings/ch21/measured.json").read_text())
        self.assertEqual(self.records.calculate('2 * output("ch21 skid.samples")')[0], 2 * file["skid"]["samples"])
        for field, nearest in (("ch21 skid.sample", "skid.samples"), ("ch21 skid", "is no number"), ("ch20 skid.samples", "ch21")):
            with self.assertRaisesRegex(records.Unknown, nearest):
                self.records.calculate(f'output("{field}")')

    def test_a_flame_graph_has_each_call_once(self):
        stacks = {"main;b;leaf": 30, "main;a;leaf": 50, "main;a": 20}
        self.assertEqual(flame.boxes(stacks), [(("main",), 100, 0), (("main", "a"), 70, 0), (("main", "b"), 30, 70),
                                               (("main", "a", "leaf"), 50, 0), (("main", "b", "leaf"), 30, 70)])
        for count, samples in ((10, 100), (0, 50), (50, 50), (345, 3458)):
            low, high = flame.share_interval(count, samples)
            self.assertTrue(0 <= low + 1e-12 and low <= count / samples <= high + 1e-12 and high <= 1 + 1e-12)
        self.assertAlmostEqual(sum(flame.share_interval(345, 3458)[i] * (-1) ** (i + 1) for i in (0, 1)), 0.02, places=3)

    def test_units(self):
        for value, field, text in ((1e-9, "time", "1.00\u202fns"), (9.999e-7, "time", "1.00\u202fµs"), (0.0123, "time", "12.3\u202fms"),
                                   (0.5, "share", "50.0\u202f%"), (3.98e12, "bytes_per_s", "3.98\u202fTB/s"), (0, "max_error", "0")):
            self.assertEqual(records.with_unit(value, field), text)

    def test_an_evaluation_is_what_its_file_says(self):
        file = json.loads((ROOT / "models/tiny/eval_kv_fp8.json").read_text())
        self.assertEqual(records.evaluation("kv_fp8", "divergence.kl"), file["divergence"]["kl"])
        for value, text in ((4.2479e-7, "4.2\u202f·\u202f10⁻⁷"), (-4.2e-6, "\u22124.2\u202f·\u202f10⁻⁶"), (0.00037268, "0.00037"),
                            (31670, "31\u202f670"), (0.0, "0")):
            self.assertEqual(records.evaluation_text(value), text)
        for name, field, nearest in (("kv_fp9", "divergence.kl", "kv_fp8"), ("kv_fp8", "divergence.k", "divergence.kl"),
                                     ("kv_fp8", "divergence", "is no number"), ("kv_fp8", "schema", "is no number")):
            with self.assertRaisesRegex(records.Unknown, nearest):
                records.evaluation(name, field)


def record_file(experiment="ch09/fused_elementwise_cpu", machine="epyc-zen4-2c"):
    return json.loads((ROOT / f"results/{machine}/{experiment}.json").read_text())


class Figures(unittest.TestCase):
    """Figures of records that were changed on purpose."""

    def records_of(self, *files):
        """Records of a machine `box` that holds these files."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for i, file in enumerate(files):
            path = pathlib.Path(folder.name) / f"box/{i}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(file))
        return records.Records(pathlib.Path(folder.name), None)

    def panel(self, found, kind="ladder", field="flops_per_s", x=None, wanted=(), roofs=(), at=None):
        return figures.panel(found, "box", [found_id for _, found_id in found.files], {"": at or {}}, kind, field, x, wanted, roofs)

    def test_simulated_points_are_hollow_and_stale_ones_marked(self):
        file = record_file()
        for kind, options in {"ladder": {}, "curve": {"x": "n"}, "roofline": {"roofs": ["a peak", "a bandwidth"]}}.items():
            with self.subTest(kind=kind):
                for point in file["experiments"][0]["points"]:
                    point["limit"] = "a peak"
                other = json.loads(json.dumps(file))
                other["experiments"][0]["id"] = "ch09/other"
                for point in other["experiments"][0]["points"]:
                    point["limit"] = "a bandwidth"
                found = self.records_of(file, other)
                self.assertNotIn("hollow", self.panel(found, kind, **options))
                self.assertNotIn("†", self.panel(found, kind, **options))
                found.experiment("box", "ch09/other")["evidence"] = "modelled"
                marks = re.findall(r'<g class="([^"]*)" data-record="box:(ch09/\w+)/', self.panel(found, kind, **options))
                self.assertEqual({"hollow" in classes for classes, of in marks if of == "ch09/other"}, {True})
                self.assertEqual({"hollow" in classes for classes, of in marks if of != "ch09/other"}, {False})
                self.assertIn("hollow: modelled", self.panel(found, kind, **options))
                found.today = {"ch09/other": "changed", file["experiments"][0]["id"]: file["experiments"][0]["source_hash"]}
                drawn = self.panel(found, kind, **options)
                marks = re.findall(r'<g class="([^"]*)" data-record="box:(ch09/\w+)/', drawn)
                self.assertEqual({of for classes, of in marks if "stale" in classes}, {"ch09/other"})
                self.assertRegex(drawn, r"<text[^>]*>[^<]* †</text>")

    def test_a_roof_is_the_median_of_the_controls(self):
        found = records.Records(program=None)
        drawn = figures.panel(found, "h200", ["ch09/roofline_sweep", "ch09/roofline_compute"], {"": {}}, "roofline", "flops_per_s", None, ())
        roofs = dict(re.findall(r'data-roof="([^"]*)" data-rate="([^"]*)"', drawn))
        for name, experiment in {"copy bandwidth of DRAM": "ch09/roofline_sweep", "fp32 FMA peak": "ch09/roofline_compute"}.items():
            rates = [rate for point in record_file(experiment, "h200")["experiments"][0]["points"]
                     for rate in {variant["limit_rate"] for variant in point["variants"]}]
            self.assertAlmostEqual(float(roofs.pop(name)) / statistics.median(rates), 1, places=5)
        self.assertEqual(roofs, {})
        # A record names the threads of its busiest variant; a thread alone has its own ceiling.
        limits = found.ceilings("epyc-zen4-2c", ["ch09/matmul_cpu"])
        self.assertEqual(sorted(limits), ["fp32 peak of avx2+fma, 1 thread", "fp32 peak of avx2+fma, 2 threads"])
        self.assertLess(1.9 * max(limits["fp32 peak of avx2+fma, 1 thread"]), min(limits["fp32 peak of avx2+fma, 2 threads"]))

    def test_the_ledger_shows_every_predicted_ratio(self):
        found = records.Records(program=None)
        for machine, short in (("h200", "h200"), ("epyc-zen4-2c", "cpu")):
            drawn = figures.ledger_panel(found, machine)
            count = found.count(f"{short} predictions ratio value")
            self.assertEqual((drawn.count("data-record="), sum(map(int, re.findall(r"<td>(\d+)</td>", drawn)))), (count, count))
            self.assertIn(f"<th scope=row>below a half</th><td>{found.count(f'{short} predictions ratio value off<0.5')}</td>", drawn)

    def test_a_roofline_wants_both_ceilings_and_known_names(self):
        found = records.Records(program=None)

        def roofline(roofs, wanted=()):
            return figures.panel(found, "h200", ["ch07/matmul_tiled"], {"": {"n": "4096"}}, "roofline", "flops_per_s", None, wanted, roofs)

        with self.assertRaisesRegex(ValueError, "against no bandwidth; name one with :roofs:"):
            roofline(())
        with self.assertRaisesRegex(ValueError, "copy bandwidth of DRAM"):
            roofline(["copy bandwith of DRAM", "fp32 FMA peak"])
        with self.assertRaisesRegex(ValueError, "no variant tilde"):
            roofline(["copy bandwidth of DRAM", "fp32 FMA peak"], ["naive", "tilde"])
        self.assertEqual(roofline(["copy bandwidth of DRAM", "fp32 FMA peak"], ["naive", "matmul_tiled/cublas"]).count("data-record"), 2)

    def test_the_table_shows_what_the_figure_draws(self):
        for experiment, field, head, unit, has_interval in (
                ("ch08/compensated_sum", "max_error", "largest error", "", False), ("ch08/simd_dot", "bytes_per_s", "bytes a second", "GB/s", True),
                ("ch09/matmul_cpu", "flops_per_s", "operations a second", "GFLOP/s", True), ("ch02/stride", "time", "time", "s", True)):
            drawn = figures.panel(records.Records(program=None), "epyc-zen4-2c", [experiment], {"": {}}, "ladder", field, None, ())
            columns = re.findall(r"<th>([^<]*)</th>", drawn)
            self.assertIn(head, columns[1:3])
            cells = [re.findall(r"<td>([^<]*)</td>", row)[columns.index(head) - 1] for row in re.findall(r"<tr><th scope=row>.*?</tr>", drawn)]
            self.assertTrue(cells)
            for cell in cells:
                self.assertRegex(cell, rf"^[\d.e\u202f-]+\s?[a-zµA-Z]*{unit}" + (r" \[.+, .+\]$" if has_interval else "$"))


def exercises():
    """Name, options and solution of each exercise, as the sources have them."""
    found_records = records.Records(program=None)
    for page in SOURCES:
        for found in re.finditer(r"^:{4,}\{exercise\} (\S+)\n((?::\w+:[^\n]*\n)+)(.*?)^:{4,}\s*$", page.read_text(), re.M | re.S):
            yield found[1], dict(re.findall(r"^:(\w+): ?(.*)$", found[2], re.M)), found_records.computed(found[3].partition("{solution}")[2])


class Keys(unittest.TestCase):
    """The build refuses a key that the worked solution does not state."""

    def test_a_wrong_key_is_found_in_every_exercise(self):
        count = 0
        for name, options, solution in exercises():
            module, function = options["solver"].strip('"').split(":")
            key = runpy.run_path(str(ROOT / "book/exercises" / module))[function]()
            choices, tolerance = [o.strip() for o in options.get("options", "").split("|")], float(options.get("tolerance", 0.01))
            self.assertTrue(keys.states(solution, key, tolerance, choices), name)
            if isinstance(key, str):
                planted = [choice for choice in choices if choice != key]
            else:
                right = list(key) if isinstance(key, (list, tuple)) else [key]
                planted = [[k + (0.3 * abs(k) + 0.17) * (i == j) for j, k in enumerate(right)] for i in range(len(right))]
            for wrong in planted:
                count += 1
                self.assertFalse(keys.states(solution, wrong, tolerance, choices), f"{name}: {wrong} instead of {key}")
        self.assertGreater(count, 200)

    def test_the_build_fails_on_it(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page"
            page.mkdir()
            name, options, solution = next(exercises())
            for text, refused in ((solution, False), (re.sub(r"\d", "7", solution), True)):
                (page / "index.md").write_text(f"# A page\n\n::::{{exercise}} {name}\n" + "".join(f":{k}: {v}\n" for k, v in options.items())
                                               + f"\nWhat?\n\n:::{{solution}}{text}::::\n")
                self.assertEqual("does not state the key" in sphinx(page, pathlib.Path(folder) / "out", "-E").stderr, refused)


class TypedNumbers(unittest.TestCase):
    def found(self, lines):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page"
            page.mkdir()
            (page / "index.md").write_text("# A page\n\n" + "\n\n".join(lines) + "\n")
            return sphinx(page, pathlib.Path(folder) / "out").stderr.count("typed by hand")

    def test_each_planted_one_is_found_and_nothing_else(self):
        self.assertEqual(self.found(CLEAN), 0)
        self.assertEqual(self.found([*PLANTED, *CLEAN]), len(PLANTED))


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        built = subprocess.run([ROOT / "tools/build_book"], capture_output=True, text=True)
        if built.returncode != 0:
            raise AssertionError(built.stdout + built.stderr)
        cls.site = ROOT / "build/book/html"
        cls.pages = sorted(cls.site.glob("**/*.html"))
        cls.chapters = [page for page in cls.pages if page.parent.name == "chapters"]
        cls.texts = [cls.site / source.relative_to(ROOT / "book").with_suffix(".html") for source in SOURCES]
        if CHROMIUM:
            profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            cls.addClassCleanup(profile.cleanup)
            cls.browser = Browser(profile.name)
            cls.addClassCleanup(cls.browser.close)

    def test_the_site_is_small_and_stays_at_home(self):
        self.assertLessEqual(sum(f.stat().st_size for f in self.site.rglob("*") if f.is_file()), 12 << 20)
        for page in self.pages:
            self.assertEqual(re.findall(r'(?:src|href)="(https?:[^"]*)"', page.read_text()), [], page.name)

    def test_chapters_have_what_a_chapter_has(self):
        for page in self.chapters:
            text = page.read_text()
            for needed in ('class="question', 'class="predict', 'class="law', 'class="record-figure', 'class="trap', 'class="summary'):
                self.assertTrue(needed in text, f"{page.name} has no {needed[7:]}")
            self.assertGreaterEqual(text.count("data-exercise="), 8, page.name)

    def test_figures_show_what_the_records_say(self):
        """Each mark's data against the JSON, read here without the book's own code."""
        marks = 0
        for page in self.texts:
            text = page.read_text()
            figures_of_page = re.findall(r"<figure class=[^>]*record-figure.*?</figure>", text, re.S)
            self.assertEqual(len(figures_of_page), text.count("record-figure"))
            self.assertLessEqual(len(figures_of_page), 6, page.name)
            for figure in figures_of_page:
                for needed in ("aria-label=", "<details class=table>", "<figcaption>", "<svg", "record: "):
                    self.assertIn(needed, figure, page.name)
                for machine, experiment, variant, at, field, shown in re.findall(
                        r'data-record="([\w-]+):([\w/]+)/(\w+)(?:\?([^"]*))?" data-y="(\w+)" data-value="([^"]*)"', figure):
                    marks += 1
                    at = dict(pair.split("=") for pair in html.unescape(at).split("&")) if at else {}
                    file = json.loads((ROOT / "results" / machine / f"{experiment}.json").read_text())
                    points = next(e["points"] for e in file["experiments"] if e["id"] == experiment)
                    found = next(v for p in points if {k: str(v).removesuffix(".0") for k, v in p["at"].items()} == at  # load=1, of 1.0
                                 for v in p["variants"] if v["id"] == variant)
                    seconds = found["time_ns"]["median"] / 1e9
                    right = {"time": lambda: seconds, "ratio": lambda: found["ratio"]["median"] if "ratio" in found else 1.0,
                             "share": lambda: found["share_of_limit"], "flops_per_s": lambda: found["flops"] / seconds,
                             "bytes_per_s": lambda: (found["bytes_read"] + found["bytes_written"]) / seconds,
                             "max_error": lambda: found["checked"]["max_error"]}[field]()
                    self.assertAlmostEqual(float(shown) / right, 1, places=4, msg=f"{page.name}: {machine}:{experiment}/{variant} {at}")
        self.assertGreater(marks, 200)

    def test_the_e_book_is_whole(self):
        out = ROOT / "build/book/epub"
        built = subprocess.run([PYTHON, "-m", "sphinx", "-W", "-n", "-q", "-b", "epub", "-d", str(ROOT / "build/book/doctrees-html"),
                                str(ROOT / "book"), str(out)], capture_output=True, text=True)
        self.assertEqual(built.returncode, 0, built.stderr)
        with zipfile.ZipFile(next(out.glob("*.epub"))) as book:
            names = set(book.namelist())
            listed = {item.get("href") for item in ElementTree.fromstring(book.read("content.opf")).iter("{http://www.idpf.org/2007/opf}item")}
            self.assertEqual(listed - names, set())
            self.assertIn("_static/book.css", listed)
            for page in self.texts:
                text = book.read(f"{page.parent.name}/{page.stem}.xhtml").decode()
                root = ElementTree.fromstring(text)  # well-formed, as an e-book has to be
                tags = [element.tag.rpartition("}")[2] for element in root.iter()]
                self.assertFalse({"script", "form", "input", "button"} & set(tags), page.name)
                self.assertEqual(tags.count("svg"), text.count('class="panel"'), page.name)
                self.assertGreater(tags.count("math"), 5, page.name)
                self.assertNotIn("katex-html", text)
                self.assertIn("_static/book.css", text)
                self.assertEqual(tags.count("details"), page.read_text().count("<details"), page.name)

    def test_every_link_leads_somewhere(self):
        class Links(html.parser.HTMLParser):
            def __init__(self, text):
                super().__init__()
                self.ids, self.hrefs = set(), []
                self.feed(text)

            def handle_starttag(self, tag, attributes):
                attributes = dict(attributes)
                self.ids |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
                self.hrefs += [attributes[name] for name in ("href", "src") if attributes.get(name)]

        parsed = {page.resolve(): Links(page.read_text()) for page in self.pages}
        for page, links in parsed.items():
            for href in links.hrefs:
                path, _, anchor = href.partition("#")
                path, _, query = path.partition("?")
                target = (page.parent / path).resolve() if path else page
                if href.startswith("data:") or (not path and "?" in anchor):  # a widget's state
                    continue
                self.assertTrue(target.is_file(), f"{page.name}: {href}")
                if anchor and target in parsed:
                    self.assertIn(anchor, parsed[target].ids, f"{page.name}: {href}")

    def test_the_glossary_says_unit_chapter_and_measure(self):
        text = (ROOT / "book/glossary.md").read_text()
        entries = re.findall(r"^(\S[^\n]*)\n  ([^\n]+)$", text.partition(":::{glossary}")[2], re.M)
        self.assertGreater(len(entries), 90)
        self.assertEqual([name for name, _ in entries], sorted((name for name, _ in entries), key=lambda n: re.sub(r"[^a-z0-9 ]", "", n.lower())))
        experiments = {path.parent.relative_to(ROOT / "experiments") for path in (ROOT / "experiments").glob("*/*/experiment.cpp")}
        known = {re.sub(r"^(ch\d\d)_\w+", r"\1", str(path)) for path in experiments}
        for name, entry in entries:
            self.assertRegex(entry, r"\. (?:.+\. )?(?:Chapters? \d+(?: and \d+)?|Interlude)\. .+\.$", name)
            for experiment in re.findall(r"`((?:ch\d\d|labs)/[\w/]+)`", entry):
                self.assertIn(experiment, known, name)
        used = {term.rpartition("<")[2].strip("<>").lower().replace("’", "'") for page in SOURCES
                for term in re.findall(r"\{term\}`([^`]*)`", page.read_text())}
        self.assertEqual([name for name, _ in entries if name.lower() not in used], [], "no chapter links to these")

    def test_listings_are_compiled_and_commands_known(self):
        listed = set(records.Records().today)  # what the program has, where there is one
        chapters = {name.partition("/")[0] for name in listed}
        for page in SOURCES:
            text = page.read_text()
            for path in re.findall(r"\{listing\} (\S+)", text):
                self.assertRegex(path, r"^(experiments/|src/|book/listings/ch(10|14|15|21)/|results/)", page.name)
            # Code that no compiler sees needs a reason; tables are included from files that a test writes.
            self.assertEqual(re.findall(r"^```(?!\{include\} \.\./listings/|$)", text, re.M), [], page.name)
            for command in re.findall(r"\{run\} (.*)", text):
                self.assertTrue(command.startswith("fathom run "), command)
                for target in command.split()[2:]:
                    chapter, _, name = target.partition(":")
                    if chapter in chapters:  # a build may have some chapters only
                        self.assertIn(f"{chapter}/{name}", listed, page.name)

    def test_widgets_can_be_read_without_a_script(self):
        for page in self.chapters:
            for box in re.findall(r'<div class="widget[^"]*">(.*?)</div>', page.read_text(), re.S):
                said = re.sub(r"<script>.*?</script>|<[^>]+>", "", box, flags=re.S)
                self.assertGreater(len(said.split()), 25, page.name)

    def test_no_role_is_left_as_text(self):
        for page in self.pages:
            self.assertEqual(re.findall(r"\{(?:num|calc|eval|cited|given|term|eq|numref)\}", page.read_text()), [], page.name)

    @unittest.skipUnless(CHROMIUM, "needs Chromium")
    def test_in_a_browser(self):
        for width in (WIDE, PHONE):  # the outer loop: a change of width lays the page before out anew
            for page in self.pages:
                if page.name == "search.html":
                    continue
                with self.subTest(page=page.name, width=width):
                    self.check(self.browser, page, width)

    def check(self, browser, page, width):
        browser.open(page, width, dark=width == PHONE)
        self.assertLessEqual(browser.evaluate(SIDEWAYS), 0, "scrolls sideways")
        browser.evaluate(SHOW_ALL)
        self.assertLessEqual(browser.evaluate(SIDEWAYS), 0, "scrolls sideways, all opened")
        if folder := os.environ.get("BOOK_SCREENS"):
            tall = browser.evaluate("document.documentElement.scrollHeight")
            for y in range(0, tall, 4000):
                browser.screenshot(pathlib.Path(folder) / f"{page.stem}_{width}_{y // 4000}.png", y=y, width=width, height=min(4000, tall - y))
        self.assertEqual(browser.evaluate(COVERED_WORDS), [])
        self.assertEqual(browser.evaluate(FAINT_TEXT), [])
        self.assertEqual(browser.evaluate(CUT_WORDS), [])
        self.assertEqual(browser.evaluate(WIDE_FORMULAS), [])
        self.assertTrue(browser.evaluate("[...document.querySelectorAll('svg.plot')].every(p => p.querySelector('.dot, .bar'))"))
        # A command can be copied; only `fathom book --serve` runs it.
        buttons = browser.evaluate("[...document.querySelectorAll('.run-line')].map(l => [...l.querySelectorAll('button')].map(b => b.innerText))")
        self.assertEqual(buttons, [["Copy"]] * len(buttons))
        for i in range(browser.evaluate("document.querySelectorAll('.fathom-widget').length")):
            self.check_keys(browser, f"document.querySelectorAll('.fathom-widget')[{i}]")
        # Every exercise takes its key, and no other answer.
        states = browser.evaluate("""JSON.stringify([...document.querySelectorAll('form.answer-form')].map(form => {
            const key = JSON.parse(form.dataset.key), out = form.querySelector('output');
            const answer = values => {
              if (form.dataset.kind === 'choice')
                form.querySelectorAll('input').forEach(i => i.checked = i.value === values[0]);
              else form.querySelectorAll('input').forEach((input, i) => input.value = values[i]);
              form.requestSubmit();
              return out.textContent;
            };
            const wrong = form.dataset.kind === 'choice' ? [[...form.querySelectorAll('input')].map(i => i.value).find(v => v !== key[0])]
                                                         : key.map(k => 2 * k + 1);
            return [form.dataset.exercise, answer(wrong), answer(key)];
          }))""")
        for name, wrong, right in json.loads(states):
            self.assertEqual((wrong, right), ("Not yet.", "Right."), name)
        for event in browser.events:
            self.assertNotIn(event.get("method"), ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"), event)
            if event.get("method") == "Network.requestWillBeSent":
                self.assertTrue(event["params"]["request"]["url"].startswith(("file:", "data:")), event)


    def check_keys(self, browser, widget):
        """A widget in its place on a page follows an arrow key, by a mark or a word."""
        shown = f"{widget}.innerHTML + JSON.stringify({widget}.dataset)"
        before = browser.evaluate(shown)
        browser.evaluate(f"[...{widget}.querySelectorAll('input[type=number], input[type=range]')].find(input => input.offsetParent).focus()")
        for key in ("ArrowUp", "ArrowDown", "ArrowDown"):  # it may stand at its end, or be rounded back
            browser.key(key)
            if browser.evaluate(shown) != before:
                return
        self.fail(f"{browser.evaluate(widget + '.tagName')} does not answer a key")

    @unittest.skipUnless(CHROMIUM, "needs Chromium")
    def test_predictions_come_first_and_are_kept(self):
        browser = self.browser
        page = next(page for page in self.chapters if page.name.startswith("02"))
        visible = "getComputedStyle(document.querySelector('#fig-roofline .panels')).display !== 'none'"
        said = "document.querySelector('form.guess output').textContent"
        score = "document.querySelector('.score').textContent"
        browser.open(page, WIDE, script=False)
        self.assertTrue(browser.evaluate(visible), "without a script there is nothing to wait for")
        browser.open(page, WIDE)
        self.assertFalse(browser.evaluate(visible))
        self.assertIn("0 of 2 predictions", browser.evaluate(score))
        browser.evaluate("document.querySelector('form.guess input').focus()")
        for key in ("a", "Enter"):
            browser.key(key)
        self.assertEqual((browser.evaluate(said), browser.evaluate(visible)), ("Type a number first.", False))
        browser.evaluate("document.querySelector('form.guess input').select()")
        for key in ("4", "Enter"):
            browser.key(key)
        for again in (False, True):  # and after the page was opened anew
            self.assertRegex(browser.evaluate(said), "Off by a factor of [34]")
            self.assertTrue(browser.evaluate(visible) and browser.evaluate("document.querySelector('details.answer').open"))
            self.assertIn("1 of 2 predictions made and 0 within", browser.evaluate(score))
            if not again:
                browser.open(page, WIDE)

    @unittest.skipUnless(CHROMIUM, "needs Chromium")
    def test_search_works_from_a_folder(self):
        browser = self.browser
        browser.open(self.site / "index.html", PHONE)
        browser.evaluate("document.querySelector('form.search input').focus()")
        for key in ("s", "p", "i", "l", "l", "Enter"):
            browser.key(key)
        begin, found = time.monotonic(), None
        while not found and time.monotonic() < begin + 20:
            time.sleep(0.05)
            found = browser.evaluate("document.querySelector('#search-results li a')?.href")
        self.assertRegex(found or "nothing", r"^file:.*/(chapters/|glossary)")
        self.assertLessEqual(browser.evaluate(SIDEWAYS), 0)
        for event in browser.events:
            self.assertNotIn(event.get("method"), ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"), event)


@unittest.skipUnless(CHROMIUM, "needs Chromium")
class Widgets(unittest.TestCase):
    """The widgets as a page has them: their modules answer as the book's golden values say, and keys move them."""

    @classmethod
    def setUpClass(cls):
        built = subprocess.run([PYTHON, ROOT / "book/widgets/build.py"], capture_output=True, text=True)
        if built.returncode != 0:
            raise AssertionError(built.stdout + built.stderr)
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        # A page for each widget, built together: a start of Sphinx takes longer than a page.
        folder = pathlib.Path(cls.folder.name)
        names = sorted(path.stem for path in (ROOT / "book/widgets").glob("*.cpp"))
        built = cls.build(folder / "out", {"index": "# Widgets\n", **{name: "---\norphan: true\n---\n" + cls.source(name, "") for name in names}})
        if built.returncode != 0:
            raise AssertionError(built.stderr)
        cls.texts = {name: (folder / f"out/{name}.html").read_text() for name in names}
        cls.browser = Browser(pathlib.Path(cls.folder.name) / "profile")
        cls.addClassCleanup(cls.browser.close)

    @staticmethod
    def source(name, state):
        return f'# A page\n\n:::{{widget}} {name}\n:state: "{state}"\nWhat to try.\n:::\n'

    @staticmethod
    def build(out, pages):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in pages.items():
                (pathlib.Path(folder) / f"{name}.md").write_text(text)
            return sphinx(folder, out, "-E", "-W")

    def open(self, name, state="", width=WIDE):
        """A page with the widget in this state."""
        text = self.texts[name]
        self.assertEqual(text.count('data-state=""'), 1)
        page = pathlib.Path(self.folder.name) / f"out/{name}.html"
        page.write_text(text.replace('data-state=""', f'data-state="{html.escape(state)}"'))
        self.browser.open(page, width)
        self.widget = "document.querySelector('.fathom-widget')"

    def answer(self, field):
        return self.browser.evaluate(f"{self.widget}.dataset.{field}")

    def type(self, control, text):
        """Replaces a number by typing, as a reader does."""
        self.browser.evaluate(f"{{ const e = {self.widget}.querySelector('[name={control}]'); e.focus(); e.select(); }}")
        for key in text:
            self.browser.key(key)

    def check_page(self):
        self.assertLessEqual(self.browser.evaluate(SIDEWAYS), 0, "scrolls sideways")
        for found in (COVERED_WORDS, FAINT_TEXT):
            self.assertEqual(self.browser.evaluate(found), [])
        for event in self.browser.events:
            self.assertNotIn(event.get("method"), ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"), event)

    def test_a_state_that_the_widget_lacks_fails_the_build(self):
        built = self.build(pathlib.Path(self.folder.name) / "refused", {"index": self.source("cache_simulator", "strid=2")})
        self.assertNotEqual(built.returncode, 0)
        self.assertIn("has no 'strid' in its state", built.stderr)

    def test_cache_simulator(self):
        for stride, hits in {1: 240, 2: 224, 16: 0, 17: 0, 128: 0}.items():
            self.open("cache_simulator", f"sets=8&ways=2&reads=256&stride={stride}", PHONE)
            self.assertEqual(self.answer("hits"), str(hits), f"stride {stride}")
            self.check_page()
        self.open("cache_simulator", "stride=1")
        self.type("stride", "2")
        self.assertEqual(self.answer("hits"), "224")
        self.check_page()
        # What the reader chose stands in the address, which another reader may open; an impossible value does not.
        self.assertIn("stride=2", self.browser.evaluate("location.hash"))
        self.browser.evaluate("location.hash = '#cache_simulator?stride=16&sets=7'")
        begin = time.monotonic()
        while self.answer("hits") == "224" and time.monotonic() < begin + 5:  # the event comes a moment later
            time.sleep(0.02)
        self.assertEqual((self.answer("hits"), self.browser.evaluate(f"{self.widget}.state.sets")), ("0", 8))

    def test_roofline_explorer(self):
        # An H200's ridge, from its datasheet.
        self.open("roofline_explorer", "ceilings=own&peak=989000&bandwidth=4800&kernel=free&intensity=0")
        self.assertAlmostEqual(float(self.answer("ridge")), 206, delta=0.5)
        self.assertAlmostEqual(float(self.answer("seconds")), 1e9 / 4.8e12, delta=1e-9)
        self.check_page()
        for kernel, intensity in {"dot": 0.25, "triad": 2 / 24, "triad_allocate": 2 / 32}.items():
            self.open("roofline_explorer", f"kernel={kernel}", PHONE)
            self.assertAlmostEqual(float(self.answer("intensity")), intensity, msg=kernel)
            self.check_page()
        self.open("roofline_explorer", "kernel=layer&in=4096&out=4096&bytes=2&fixed=0")
        before = float(self.answer("seconds"))
        self.type("fixed", "7")
        self.assertAlmostEqual(float(self.answer("seconds")), before + 7e-6)

    def test_float_explorer(self):
        self.open("float_explorer", "format=bf16&x=256&y=1&terms=ones&n=10", PHONE)
        self.assertEqual((self.answer("sum"), self.answer("total")), ("256", "256"))
        self.check_page()
        for name, largest in {"e4m3": "448", "e5m2": "57344", "fp16": "Infinity"}.items():
            self.open("float_explorer", f"format={name}&x=1000000")
            self.assertEqual(self.answer("value"), largest, name)
            self.check_page()
        # Enter on the lowest exponent bit halves 256 = 2^8, and the focus stays there to flip it back.
        self.open("float_explorer", "format=bf16&x=256")
        self.browser.evaluate(f"{self.widget}.querySelector('[data-place=\"7\"]').focus()")
        for value in ("128", "256"):
            self.browser.key("Enter")
            self.assertEqual(self.answer("value"), value)

    def test_monoid_stepper(self):
        golden = [1, 1.135335, 1.503215, 1.203438]
        self.open("monoid_stepper", "monoid=softmax&values=1,3,2,5&chunk=4&step=4", PHONE)
        for found, right in zip(map(float, self.answer("prefixes").split(",")), golden, strict=True):
            self.assertAlmostEqual(found, right, places=6)
        self.check_page()
        self.open("monoid_stepper", "monoid=moments&values=0,2,4,6&chunk=2")
        self.assertEqual(self.answer("whole"), "4,3,20")
        self.check_page()
        self.type("values", "1,1")
        self.assertEqual(self.answer("whole"), "2,1,0")

    def test_warp_model(self):
        for state, sectors in {"": 4, "base=1": 5, "stride=2": 8, "stride=8": 32}.items():
            self.open("warp_model", state, PHONE)
            self.assertEqual(self.answer("sectors"), str(sectors), state)
            self.check_page()
        for stride, degree in {2: 2, 3: 1, 8: 8, 33: 1}.items():
            self.open("warp_model", f"memory=shared&stride={stride}")
            self.assertEqual(self.answer("degree"), str(degree), f"stride {stride}")
        self.open("warp_model", "memory=shared&stride=32&branch=remainder&k=8&pass=1", PHONE)
        self.assertEqual((self.answer("paths"), self.answer("degree"), self.answer("passes")), ("8", "4", "32"))
        self.check_page()
        self.type("stride", "1")
        self.assertEqual((self.answer("degree"), self.answer("passes")), ("1", "8"))
        self.open("warp_model", "memory=shared&stride=8&bytes=16&swizzle=xor")
        self.assertEqual((self.answer("degree"), self.answer("passes")), ("1", "4"))
        self.check_page()

    def test_noise_lab(self):
        # Pairs in tossed order keep the nominal rate of false alarms, whatever both runs of a pair share.
        for noise in ("", "drift=5", "drift=10&clock=10&outliers=5"):
            self.open("noise_lab", f"design=tossed&estimator=paired&{noise}", PHONE)
            self.assertLess(float(self.answer("alarms")), 0.065, noise)
            self.check_page()
        self.open("noise_lab", "design=a_then_b&estimator=mean&drift=5&difference=2")
        self.assertGreater(float(self.answer("alarms")), 0.5)
        self.assertIn("Simulated", self.browser.evaluate(f"{self.widget}.innerText"))
        self.check_page()
        before = self.answer("low")
        self.type("seed", "2")
        self.assertNotEqual(self.answer("low"), before)
        self.type("seed", "1")
        self.assertEqual(self.answer("low"), before)

    def test_fusion_graph(self):
        def press(button):
            self.browser.evaluate(f"{self.widget}.querySelector('[data-button=\"{button}\"]').focus()")
            self.browser.key("Enter")

        self.open("fusion_graph", "ops=5&gib=1", PHONE)
        self.assertEqual(self.answer("gib"), "10")
        for pair, moved in {"1-2": 8, "2-3": 6, "3-4": 4, "4-5": 2}.items():
            press(pair)
            self.assertEqual(self.answer("gib"), str(moved))
        press("2-3")  # cuts again, and the focus stays
        press("2-3")
        self.assertEqual((self.answer("gib"), self.answer("kernels"), self.answer("live")), ("2", "1", "1"))
        self.assertIn("plan=aaaaa", self.browser.evaluate("location.hash"))
        self.check_page()
        # The exponentials may be stored or computed again; the division cannot share their sum's walk.
        self.open("fusion_graph", "graph=softmax&gib=1")
        press("2-3")
        self.assertEqual((self.answer("gib"), self.answer("refused")), ("5", "0"))
        press("3-4")
        self.assertEqual((self.answer("gib"), self.answer("refused")), ("5", "1"))
        self.assertIn("complete only after its last", self.browser.evaluate(f"{self.widget}.querySelector('.refusal').textContent"))
        press("again2")
        self.assertEqual((self.answer("gib"), self.answer("refused"), self.answer("evaluations")), ("4", "0", "5"))
        self.check_page()
        self.open("fusion_graph", "graph=softmax&gib=1&held=yes&plan=aaaa", PHONE)
        self.assertEqual((self.answer("gib"), self.answer("refused")), ("2", "0"))
        self.check_page()
        self.open("fusion_graph", "graph=softmax&gib=1&plan=aaaa")
        self.assertEqual((self.answer("gib"), self.answer("refused")), ("6", "1"))
        self.check_page()

    def test_kv_allocator(self):
        self.open("kv_allocator", "requests=40/8@0,40/8@0,40/8@0&shared=32&block=16", PHONE)
        self.assertEqual((self.answer("used"), self.answer("unshared"), self.answer("found")), ("5", "9", "64"))
        self.check_page()
        self.type("shared", "0")
        self.assertEqual((self.answer("used"), self.answer("unshared")), ("9", "9"))
        self.open("kv_allocator", "requests=100/28@0&placement=contiguous&reserve=2048&pool=128")
        self.assertAlmostEqual(float(self.answer("waste")), 0.951, places=3)
        self.check_page()
        self.open("kv_allocator", "requests=100/28@0&pool=128")
        self.assertAlmostEqual(float(self.answer("waste")), 0.107, places=3)
        self.type("requests", "20/9@0,20/9@3")
        self.assertEqual(self.answer("used"), "2")
        self.assertIn("20%2F9%403", self.browser.evaluate("location.hash"))
        # A pool that is too small: the last one gives way, and the address says at which step one looks.
        self.open("kv_allocator", "requests=16/32@0,16/32@0&shared=0&pool=4&step=40", PHONE)
        self.assertEqual(self.answer("preempted"), "1")
        self.check_page()

    def test_fault_timeline(self):
        # Chapter 19: what a look at the clock lets pass, and a tag does not. Within 1.2 s our router notices.
        for fault, wrong in {"stopped": "1", "cut_off": "20"}.items():
            self.open("fault_timeline", f"fault={fault}&begin=450&lasts=3000&guard=clock", PHONE)
            self.assertEqual((self.answer("wrong"), self.answer("refused"), self.answer("noticed"), self.answer("granted")), (wrong, "0", "1150", "1950"))
            self.check_page()
        self.open("fault_timeline", "fault=cut_off&begin=450&lasts=3000&guard=tag")
        self.assertEqual((self.answer("wrong"), self.answer("refused")), ("0", "31"))
        self.check_page()
        self.type("lasts", "300")
        self.assertEqual((self.answer("noticed"), self.answer("granted"), self.answer("refused")), ("", "", "0"))
        self.check_page()
        self.open("fault_timeline", "fault=killed&begin=450&guard=none", PHONE)
        self.assertEqual((self.answer("noticed"), self.answer("granted"), self.answer("wrong")), ("0", "0", "0"))
        self.check_page()

    def test_payoff_calculator(self):
        # Chapter 24's exercises: 80 hours at 10 that save 50 a month; and an attempt with an even chance.
        self.open("payoff_calculator", "part=100&limit=1&ratio=2&bill=100&months=24&chance=100&cost=800&upkeep=0", PHONE)
        self.assertAlmostEqual(float(self.answer("months")), 16)
        self.check_page()
        self.open("payoff_calculator", "part=100&limit=1&ratio=1.25&bill=1000&months=6&chance=50&cost=400&upkeep=20")
        self.assertAlmostEqual(float(self.answer("value")), 140)
        self.assertAlmostEqual(float(self.answer("chance")), 400 / 1080)
        self.check_page()
        self.type("ratio", "1")
        self.assertEqual(self.answer("months"), "Infinity")
        self.check_page()
        self.open("payoff_calculator", "part=30&limit=80&ratio=100", PHONE)  # no part exceeds its limit
        self.assertAlmostEqual(float(self.answer("whole")), 1.0638, places=4)
        self.assertIn("then it is at its limit", self.browser.evaluate(f"{self.widget}.innerText"))
        self.check_page()

    def test_profile_sampler(self):
        # Chapter 21's first exercise; by lot the law holds, and in step with the timer no interval holds the truth.
        self.open("profile_sampler", "samples=3458&timer=lot&part=read", PHONE)
        self.assertEqual(self.answer("needed"), "3458")
        self.assertAlmostEqual(float(self.answer("deviation")) / float(self.answer("law")), 1, delta=0.1)
        self.assertAlmostEqual(float(self.answer("covered")), 0.95, delta=0.03)
        self.assertIn("Simulated", self.browser.evaluate(f"{self.widget}.innerText"))
        self.check_page()
        self.open("profile_sampler", "samples=125&timer=periodic&round=1&part=read")
        self.assertIn(self.answer("count"), ("0", "125"))
        self.assertLess(float(self.answer("covered")), 0.01)
        self.check_page()
        self.type("round", "125")
        self.assertIn(self.answer("count"), ("12", "13"))
        self.assertEqual(float(self.answer("covered")), 1)
        self.check_page()

    def test_semiring_selector(self):
        # From A to F in at most four edges, as chapter 23's table says; and each edge more finds a shorter way.
        for semiring, answer in {"plus_times": 7, "min_plus": 11, "max_plus": 15, "max_times": 0.09, "max_min": 3, "or_and": 1}.items():
            self.open("semiring_selector", f"semiring={semiring}&steps=4", PHONE)
            self.assertAlmostEqual(float(self.answer("answer")), answer, places=6, msg=semiring)
            self.check_page()
        for steps, answer in {3: "14", 5: "10", 1: "Infinity"}.items():
            self.open("semiring_selector", f"semiring=min_plus&steps={steps}")
            self.assertEqual(self.answer("answer"), answer)
        self.open("semiring_selector", "semiring=plus_times&length=exactly&edges=AB1,BA1&to=A&steps=2")
        self.assertEqual(self.answer("answer"), "1")
        self.type("edges", "AA1,AB1,BA1")
        self.assertEqual(self.answer("answer"), "2")
        self.assertIn("edges=AA1%2CAB1%2CBA1", self.browser.evaluate("location.hash"))
        self.check_page()

    def test_pipeline_schedule(self):
        for schedule in ("gpipe", "1f1b"):
            for size, total, bubble in (("stages=4&microbatches=8", "33", 0.2727), ("stages=8&microbatches=32", "117", 0.1795)):
                self.open("pipeline_schedule", f"schedule={schedule}&{size}&f=1&b=2", PHONE)
                self.assertEqual(self.answer("total"), total)
                self.assertAlmostEqual(float(self.answer("bubble")), bubble, places=4)
                self.check_page()
        self.open("pipeline_schedule", "schedule=zero_bubble&stages=8&microbatches=20&time=30")
        self.assertEqual((self.answer("total"), self.answer("peak")), ("67", "8"))
        self.check_page()
        self.type("stages", "4")
        self.assertEqual((self.answer("total"), self.answer("peak")), ("63", "4"))
        self.open("pipeline_schedule", "schedule=dualpipe&stages=8&microbatches=20", PHONE)
        self.assertEqual((self.answer("total"), self.answer("peak")), ("66", "9"))
        self.check_page()
        self.type("stages", "5")
        self.assertEqual(self.answer("total"), "")
        self.assertIn("even number of stages", self.browser.evaluate(f"{self.widget}.querySelector('.refusal').textContent"))
        self.check_page()


if __name__ == "__main__":
    if subprocess.run([PYTHON, "-c", "import sphinx, myst_parser"], capture_output=True).returncode != 0 or not all(
            map(shutil.which, ("clang-14", "wasm-ld-14"))):
        print("skipped: Debian's Sphinx, MyST, clang-14 or lld-14 is missing (packages-book.txt)")
        sys.exit(77)
    unittest.main()
