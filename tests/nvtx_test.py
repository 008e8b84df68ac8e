#!/usr/bin/env python3
"""The NVTX ranges that nsys and ncu see, of a run and of a stand-alone program, without a GPU: tests/nvtx_recorder.cpp takes the
place of such a tool.

usage: nvtx_test.py NVTX_RECORDER CH08_SIMD_DOT [FATHOM]
"""
import collections
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

RECORDER, PROGRAM, FATHOM = [os.path.abspath(path) for path in sys.argv[1:4]] + [None] * (4 - len(sys.argv))
del sys.argv[1:]


def recorded(*command):
    """Lines of the recorder: "push fathom ch08", "pop fathom"."""
    with tempfile.TemporaryDirectory() as folder:
        record = pathlib.Path(folder, "ranges")
        subprocess.run(command, check=True, capture_output=True, cwd=folder, timeout=280,
                       env=dict(os.environ, NVTX_INJECTION64_PATH=RECORDER, NVTX_RECORD=str(record),
                                FATHOM_HISTORY=str(pathlib.Path(folder, "history.sqlite"))))
        return [line.strip() for line in record.read_text().splitlines()]


@unittest.skipIf("avx2" not in pathlib.Path("/proc/cpuinfo").read_text(), "experiments are compiled for x86-64-v3")
class NvtxRanges(unittest.TestCase):
    def test_a_stand_alone_program_wraps_all_calls_once(self):
        self.assertEqual(recorded(PROGRAM, "scalar", "n=1000", "--calls", "2"),
                         ["push fathom ch08", "push fathom simd_dot", "push fathom scalar"] + ["pop fathom"] * 3)

    @unittest.skipUnless(FATHOM, "no program `fathom` was named")
    def test_every_sample_of_a_run_is_in_the_range_of_its_variant(self):
        lines = recorded(FATHOM, "run", "ch08:accumulators", "--quick", "--repeat", "10")
        stack, samples = [], collections.Counter()
        for line in lines:
            if line == "pop fathom":
                stack.pop()
                continue
            stack.append(line.removeprefix("push fathom "))
            self.assertEqual(stack[:2], ["ch08", "accumulators"][:len(stack)])
            self.assertLessEqual(len(stack), 3, "a variant's ranges do not nest")
            samples[stack[-1]] += len(stack) == 3
        self.assertEqual(stack, [], "what was opened is closed")
        for variant in ("one_chain", "two_chains", "four_chains"):
            self.assertGreaterEqual(samples[variant], 10, samples)


if __name__ == "__main__":
    unittest.main(verbosity=2)
