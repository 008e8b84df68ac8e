"""tools/compare_builds on made-up programs whose times are known."""
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

TOOL = pathlib.Path(__file__).resolve().parent.parent / "tools/compare_builds"


class CompareBuilds(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def program(self, name, body):
        """Answers `run --json` with the dictionary `times`, which `body` makes of `n`, the number of this call."""
        path = pathlib.Path(self.folder.name) / name
        path.write_text(f"#!{sys.executable}\n" + textwrap.dedent("""\
            import json, pathlib, sys
            assert sys.argv[1] == "run" and "--quick" in sys.argv and "--json" in sys.argv
            counter = pathlib.Path(sys.argv[0] + ".calls")
            n = int(counter.read_text()) if counter.exists() else 0
            counter.write_text(str(n + 1))
            BODY
            variants = [{"id": v, "status": "ok", "time_ns": {"median": ns}} for v, ns in times.items()]
            print(json.dumps({"experiments": [{"id": "ch08/x", "points": [{"at": {"n": 4}, "variants": variants}]}]}))
            """).replace("BODY", body))
        path.chmod(0o755)
        return str(path)

    def compare(self, old, new, *flags):
        return subprocess.run([sys.executable, TOOL, old, new, "ch08:x", *flags], capture_output=True, text=True)

    def test_slower_faster_and_same_are_told_apart(self):
        old = self.program("old", "times = {'a': 100 + n % 2, 'b': 100, 'c': 100 + n % 2}")
        new = self.program("new", "times = {'a': 110 + n % 2, 'b': 80, 'c': 100 + n % 3 / 2}")
        seen = self.compare(old, new)
        self.assertEqual(seen.returncode, 1, seen.stderr)
        self.assertRegex(seen.stdout, r"SLOWER +ch08/x/a\?n=4: 0\.9")
        self.assertRegex(seen.stdout, r"FASTER +ch08/x/b\?n=4: 1\.250 \[1\.250, 1\.250\]")
        self.assertRegex(seen.stdout, r"SAME +ch08/x/c")
        self.assertNotIn("advisory", seen.stdout)

    def test_the_same_build_is_not_slower_than_itself(self):
        one = self.program("one", "times = {'a': 100 + (7 * n) % 5 / 4}")
        seen = self.compare(one, one, "--rounds", "9")
        self.assertEqual(seen.returncode, 0, seen.stdout)
        self.assertIn("SAME", seen.stdout)

    def test_a_control_that_failed_makes_it_advisory(self):
        # Of the old build's twelve calls these are the ones against itself, in the order of the six rounds.
        old = self.program("old", "times = {'a': 130 if n in (1, 3, 4, 6, 8, 11) else 100}")
        new = self.program("new", "times = {'a': 200}")
        seen = self.compare(old, new)
        self.assertRegex(seen.stdout, r"SLOWER +ch08/x/a\?n=4: 0\.500 .* itself \[0\.769, 0\.769\], advisory")
        self.assertEqual(seen.returncode, 0, seen.stdout)

    def test_what_the_new_build_lost_fails(self):
        seen = self.compare(self.program("old", "times = {'a': 1, 'b': 1}"), self.program("new", "times = {'a': 1}"))
        self.assertEqual(seen.returncode, 1, seen.stdout)
        self.assertRegex(seen.stdout, r"LOST +ch08/x/b")

    def test_bad_input_is_named(self):
        one = self.program("one", "times = {}")
        for flags, words in ((("--rounds", "5"), "at least 6"), (("--rounds", "x"), "invalid int value")):
            seen = self.compare(one, one, *flags)
            self.assertEqual(seen.returncode, 5)
            self.assertIn(words, seen.stderr)
        self.assertIn("is no program", self.compare(one, os.path.join(self.folder.name, "none")).stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
