#!/usr/bin/env python3
"""An experiment as a program of its own (experiments/standalone.cpp): what it says, and that it makes the calls it is asked for.

usage: standalone_test.py CH08_SIMD_DOT
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))


def run(*args):
    return subprocess.run([PROGRAM, *args], capture_output=True, text=True, timeout=120)


@unittest.skipIf("avx2" not in pathlib.Path("/proc/cpuinfo").read_text(), "experiments are compiled for x86-64-v3")
class Standalone(unittest.TestCase):
    def test_without_arguments_it_says_what_there_is(self):
        for args in ([], ["--help"]):
            result = run(*args)
            self.assertEqual(result.returncode, 0)
            self.assertIn("usage: ch08_simd_dot VARIANT", result.stdout)
            for variant in ("scalar", "omp_simd", "highway"):
                self.assertIn(variant, result.stdout)

    def test_it_calls_a_variant_and_checks_what_it_left(self):
        result = run("highway", "n=1000", "--calls", "3")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("ch08/simd_dot/highway?n=1000: 3 calls; 1 elements", result.stdout)

    def test_wrong_arguments_are_named(self):
        for args, said in ((["hihgway"], "no variant 'hihgway'; there are scalar"), (["scalar", "m=3"], "no axis 'm'"),
                           (["scalar", "n=-1"], "axis 'n' takes"), (["scalar", "--calls", "0"], "--calls 0"),
                           (["scalar", "--calls"], "cannot read the axis '--calls'")):
            result = run(*args)
            self.assertEqual(result.returncode, 5, args)
            self.assertIn(said, result.stderr)
            self.assertIn("usage:", result.stderr)

    @unittest.skipUnless(shutil.which("valgrind"), "valgrind is not installed (packages-test.txt)")
    def test_it_makes_as_many_calls_as_it_is_asked_for(self):
        def instructions(calls):
            with tempfile.TemporaryDirectory() as folder:
                subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/dump", PROGRAM, "scalar",
                                "n=4096", "--calls", str(calls)], check=True, capture_output=True, timeout=120)
                text = pathlib.Path(folder, "dump").read_text(errors="replace")
            return int(re.search(r"^(?:totals|summary): (\d+)", text, re.M).group(1))

        # One multiplication and one addition an element, at least an instruction for both. Starting the program takes some
        # 28 million, a million more or less.
        each = (instructions(5000) - instructions(1000)) / 4000
        self.assertGreater(each, 4096)
        self.assertLess(each, 10 * 4096)


if __name__ == "__main__":
    unittest.main(verbosity=2)
