"""tools/quick_report, the last step of `make demo`, with a stand-in for the program: which exit codes end it in red,
and that its last lines say what the others mean.

usage: quick_report_test.py
"""

import os
import subprocess
import tempfile
import unittest

TOOL = os.path.join(os.path.dirname(__file__), "..", "tools", "quick_report")


def quick_report(code, writes=True):
    """Of a program that writes a report, or does not, and exits with `code`."""
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "fathom")
        report = "mkdir -p $5/run && echo page >$5/run/report.html" if writes else "true"
        with open(program, "w") as file:
            # The report is to be newer than the moment at which the tool began, on a coarse clock too.
            file.write(f"#!/bin/sh\n[ \"$1 $2 $3 $4\" = 'run --quick tour --artifacts-dir' ] || exit 99\n"
                       f"sleep 0.05\n{report}\necho measured\nexit {code}\n")
        os.chmod(program, 0o755)
        return subprocess.run([TOOL, program, os.path.join(folder, "artifacts")], capture_output=True, text=True)


class QuickReport(unittest.TestCase):
    def test_a_good_run_ends_with_where_to_go(self):
        done = quick_report(0)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"\Ameasured\n\nOpen +file:///.*/report\.html\nThen .*fathom run ch07:transpose_cpu .*\n.*fathom serve .*\n\Z")

    def test_an_invalid_measurement_or_skips_are_said_and_are_no_error(self):
        for code, word in ((3, "invalid"), (4, "skipped")):
            done = quick_report(code)
            self.assertEqual(done.returncode, 0, done)
            self.assertIn(word, done.stdout.splitlines()[1])

    def test_wrong_output_and_crashes_stay_errors(self):
        for code in (1, 2, 5, 6):
            self.assertEqual(quick_report(code).returncode, code)

    def test_no_report_is_an_error_whatever_the_run_says(self):
        for code, expected in ((0, 1), (2, 2), (3, 3), (4, 4)):
            done = quick_report(code, writes=False)
            self.assertEqual(done.returncode, expected)
            self.assertIn("no report.html", done.stderr)


if __name__ == "__main__":
    unittest.main()
