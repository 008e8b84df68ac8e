#!/usr/bin/env python3
"""Builds the book and reads it: numbers, typed numbers, exercises, and every page in a browser at two widths.

usage: book_test.py
Exit code 77 (a skip for CTest) where Debian's Sphinx, MyST or clang-14 is missing (packages-book.txt); the browser part is left
out without Chromium, and says so.
"""
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ["XDG_DATA_HOME"] = "/nowhere"  # whoever runs this has no records of their own
PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's Sphinx
sys.path[:0] = [str(ROOT / "book/_ext"), str(ROOT / "tests")]

from report_browser_test import CHROMIUM, COVERED_WORDS, FAINT_TEXT, OPEN_ALL, PHONE, SIDEWAYS, WIDE, Browser  # noqa: E402

import records  # noqa: E402

# Each is a measured quantity typed by hand. The clean lines beside them hold numbers that are none.
PLANTED = ["It takes 3.4 ns.", "The rate is 4.2 GB/s there.", "That is 2.7 times faster.", "It reaches 84 % of the limit.",
           "A gain of 1.6×.", "In 12 ms it is done.", "It needs 1,300 us.", "The peak is 63 TFLOP/s.", "It makes 770 tokens/s.",
           "The clock is 1.75 GHz."]
CLEAN = ["A line has 64 bytes.", "There are 8 sets of 2 ways.", "Chapter 12 follows.", "The loop runs 1024 times.", "In 2024 it was new.",
         "`3.4 ns` is code.", "$4.2$ is mathematics.", "{given}`4 ns` is assumed."]


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
        for expression in ("__import__('os')", "open('x')", "[1]", "num('x')()"):
            with self.assertRaises((records.Unknown, SyntaxError), msg=expression):
                self.records.calculate(expression)

    def test_units(self):
        for value, field, text in ((1e-9, "time", "1.00\u202fns"), (9.999e-7, "time", "1.00\u202fµs"), (0.0123, "time", "12.3\u202fms"),
                                   (0.5, "share", "50.0\u202f%"), (3.98e12, "bytes_per_s", "3.98\u202fTB/s"), (0, "max_error", "0")):
            self.assertEqual(records.with_unit(value, field), text)


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

    def test_no_role_is_left_as_text(self):
        for page in self.pages:
            self.assertEqual(re.findall(r"\{(?:num|calc|cited|given|term|eq|numref)\}", page.read_text()), [], page.name)

    @unittest.skipUnless(CHROMIUM, "needs Chromium")
    def test_in_a_browser(self):
        with tempfile.TemporaryDirectory() as profile:
            browser = Browser(profile)
            self.addCleanup(browser.close)
            for page in self.pages:
                if page.name == "search.html":
                    continue
                for width in (WIDE, PHONE):
                    with self.subTest(page=page.name, width=width):
                        self.check(browser, page, width)

    def check(self, browser, page, width):
        browser.open(page, width, dark=width == PHONE)
        self.assertLessEqual(browser.evaluate(SIDEWAYS), 0, "scrolls sideways")
        browser.evaluate(OPEN_ALL)
        self.assertLessEqual(browser.evaluate(SIDEWAYS), 0, "scrolls sideways, all opened")
        self.assertEqual(browser.evaluate(COVERED_WORDS), [])
        self.assertEqual(browser.evaluate(FAINT_TEXT), [])
        self.assertTrue(browser.evaluate("[...document.querySelectorAll('svg.plot')].every(p => p.querySelector('.dot, .bar'))"))
        # A command can be copied; only `fathom book --serve` runs it.
        buttons = browser.evaluate("[...document.querySelectorAll('.run-line')].map(l => [...l.querySelectorAll('button')].map(b => b.innerText))")
        self.assertEqual(buttons, [["Copy"]] * len(buttons))
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


@unittest.skipUnless(CHROMIUM, "needs Chromium")
class Widgets(unittest.TestCase):
    """The widgets as a page has them: their modules answer as the book's golden values say, and keys move them."""

    @classmethod
    def setUpClass(cls):
        built = subprocess.run([PYTHON, ROOT / "book/widgets/build.py"], capture_output=True, text=True)
        if built.returncode != 0:
            raise AssertionError(built.stdout + built.stderr)
        cls.folder, cls.built = tempfile.TemporaryDirectory(), {}
        cls.addClassCleanup(cls.folder.cleanup)
        cls.browser = Browser(pathlib.Path(cls.folder.name) / "profile")
        cls.addClassCleanup(cls.browser.close)

    def open(self, name, state="", width=WIDE):
        """A page with the widget in this state. Sphinx builds it once; later states stand where it put the first."""
        if name not in self.built:
            source, out = pathlib.Path(self.folder.name) / "source", pathlib.Path(self.folder.name) / name
            source.mkdir(exist_ok=True)
            (source / "index.md").write_text(f'# A page\n\n:::{{widget}} {name}\n:state: "{state}"\nWhat to try.\n:::\n')
            built = sphinx(source, out, "-E", "-W")
            self.assertEqual(built.returncode, 0, built.stderr)
            self.built[name] = (out / "index.html", (out / "index.html").read_text(), html.escape(state))
        page, text, first = self.built[name]
        page.write_text(text.replace(f'data-state="{first}"', f'data-state="{html.escape(state)}"'))
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
        self.built.pop("cache_simulator", None)
        with self.assertRaisesRegex(AssertionError, "has no 'strid' in its state"):
            self.open("cache_simulator", "strid=2")

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
