"""docs/course.md is what its sources say, its commands resolve, and a source that is wrong is named.
    python3 tests/course_test.py build/release/fathom
"""
import copy
import json
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import course  # noqa: E402

PROGRAM = sys.argv.pop(1)
PAGE = (ROOT / "docs/course.md").read_text()
TAKES_TARGETS = ("run", "list", "verify", "diff")


def commands():
    """Every command of the page: lines of code, and code in a sentence or a cell."""
    lines = re.findall(r"^    (fathom .*)$", PAGE, re.MULTILINE)
    return [shlex.split(line) for line in lines + re.findall(r"`(fathom [^`]*)`", PAGE)]


def fathom(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)


def rows_after(title):
    """The rows of the first table below that heading, as lists of cells."""
    section = PAGE[PAGE.index(f"\n## {title}"):]
    table = re.search(r"(^\|.*\n)+", section, re.MULTILINE).group(0).splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table[2:]]


class Course(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sources = course.read(PROGRAM)

    def changed(self, change):
        """What the tool says of sources that were changed so."""
        sources = copy.deepcopy(self.sources)
        change(sources)
        with self.assertRaises(SystemExit) as refused:
            course.page(sources)
        return str(refused.exception)

    def test_the_page_is_what_its_sources_say(self):
        result = subprocess.run([ROOT / "tools/course_page", PROGRAM, "--check"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_every_command_resolves(self):
        seen = 0
        for command in commands():
            with self.subTest(" ".join(command)):
                verb, rest = command[1], command[2:]
                self.assertEqual(fathom(verb, "--help").returncode, 0)
                known = fathom(verb, "--help").stdout
                for flag in (word.split("=")[0] for word in rest if word.startswith("-")):
                    self.assertIn(flag, known, f"`fathom {verb}` has no {flag}")
                if verb not in TAKES_TARGETS:
                    continue
                # `list` resolves targets and axes as `run` does.
                taken = rest[:next((i for i, word in enumerate(rest) if word.startswith("--")), len(rest))]
                listed = fathom("list", "--json", *taken)
                self.assertEqual(listed.returncode, 0, listed.stderr)
                if verb == "diff":
                    compared = fathom(*command[1:])
                    self.assertEqual(compared.returncode, 0, compared.stderr)
                found = json.loads(listed.stdout)
                self.assertTrue(found["experiments"] or found["planned"])
                seen += 1
        self.assertGreaterEqual(seen, 20 + 4 + 3)

    def test_each_chapter_has_a_row_and_a_start(self):
        rows = rows_after("The chapters")
        self.assertEqual([row[0] for row in rows], [str(number) for number in range(1, 21)])
        for number, focus, hook, start, on in rows:
            target = re.match(r"`fathom run (ch(\d\d)\S*?)( --quick)?`", start)
            self.assertTrue(target and focus and hook, start)
            self.assertEqual(int(target.group(2)), int(number), "starts in another chapter")
            found = json.loads(fathom("list", "--json", target.group(1)).stdout)
            if course.NOT_BUILT in start:
                self.assertEqual([skip["reason"] for skip in found["planned"]], ["not_built"])
                self.assertEqual(found["experiments"], [])
            else:
                backend = {"CPU": "cpu", "GPU": "cuda"}[on]
                self.assertEqual([experiment["backend"] for experiment in found["experiments"]], [backend])

    def test_an_act_runs_in_the_order_of_its_cards(self):
        for act in range(1, 5):
            shown = [re.match(r"\d+\. `([^`]*)`", row[0]).group(1) for row in rows_after(f"Act {act}:")]
            found = json.loads(fathom("list", "--json", f"act{act}").stdout)
            listed = [experiment["id"] for experiment in found["experiments"]]
            planned = [label["label"] for label in found["planned"]]
            self.assertEqual([course.id_of(target) for target in shown if target not in planned], listed)
            self.assertTrue(set(planned) <= set(shown))

    def test_the_labs_have_what_the_table_says(self):
        variants = {}
        for experiment in json.loads(fathom("list", "--json", "labs").stdout)["experiments"]:
            for variant in experiment["variants"]:
                variants[f"{experiment['id']}/{variant['id']}"] = variant["techniques"]
        labs = {name.split("/")[1] for name in variants}
        rows, seen = rows_after("Labs and techniques"), set()
        self.assertEqual([row[0] for row in rows], [topic["name"] for topic in self.sources.course["topic"]])
        for topic, (_, cell) in zip(self.sources.course["topic"], rows):
            for line in cell.split("<br>"):
                if ": " not in line:
                    continue
                lab, names = line.split(": ", 1)
                seen.add(lab.strip("*"))
                for name in re.findall(r"`([^`]*)`", names):
                    full = f"labs/{lab.strip('*')}/{name}"
                    self.assertIn(full, variants)
                    if "variants" not in topic:
                        self.assertTrue(set(topic["techniques"]) & set(variants[full]), full)
        self.assertEqual(seen, labs, "a lab shows none of the techniques")

    def test_a_number_is_the_records(self):
        record = json.loads((ROOT / "results/epyc-zen4-2c/ch15/sparse_activation_cpu.json").read_text())
        point = record["experiments"][0]["points"][0]
        ratio = next(v["ratio"]["median"] for v in point["variants"] if v["id"] == "routed_grouped")
        row = next(row for row in rows_after("Act 1:") if "`ch15:sparse_activation_cpu`" in row[0])
        self.assertIn(f"{ratio:.3g}×", row[2])
        rates = next(row for row in rows_after("Storage throughput") if "ordered_1m" in row[2])
        point = json.loads((ROOT / "results/epyc-zen4-2c/ch05/sequential_read.json").read_text())["experiments"][0]["points"][0]
        variant = next(v for v in point["variants"] if v["id"] == "ordered_1m")
        # Bytes over time, which is not how the page came to it.
        self.assertAlmostEqual(float(rates[3].split("→")[1].split()[0]), variant["bytes_read"] / variant["time_ns"]["median"], delta=0.02)

    def test_wrong_sources_are_named(self):
        def first_card(sources):
            return sources.course["act"][0]["card"][0]
        self.assertIn("no experiment 'ch01:nothing'", self.changed(
            lambda s: (first_card(s).update(target="ch01:nothing"), s.labels.append({"name": "act1", "target": ""}),
                       next(label for label in s.labels if label["name"] == "act1").update(
                           target=" ".join(card["target"] for card in s.course["act"][0]["card"])))))
        self.assertIn("no variant 'reciprocl'", self.changed(lambda s: first_card(s).update(variant="reciprocl")))
        self.assertIn("act1: the cards are", self.changed(lambda s: s.course["act"][0]["card"].pop()))
        self.assertIn("there is no experiment 'ch03:pinning'", self.changed(lambda s: s.chapters[2].update(start="ch03:pinning")))

        def without_tf32(sources):
            for variant in sources.experiments["labs/matmul/tf32"]["variants"]:
                variant["techniques"] = []
        self.assertIn("labs/matmul must show TF32", self.changed(without_tf32))
        self.assertIn("there is no labs/matmull", self.changed(lambda s: s.course["topic"][0]["labs"].append("matmull")))


if __name__ == "__main__":
    unittest.main()
