#!/usr/bin/env python3
"""Instructions that a step's bookkeeping takes with 256 sequences running: at most 240,000, which is 60 us at 1
instruction a cycle of 4 GHz. usage: scheduler_cost_test.py SCHEDULER_COST"""
import re
import shutil
import subprocess
import sys

SKIP = 77
MOST = 240_000


def instructions(program, steps):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(re.search(r"Collected : (\d+)", done.stderr).group(1))


def main():
    if not shutil.which("valgrind"):
        print("skipped: valgrind is not installed (packages-test.txt)")
        return SKIP
    program = sys.argv[1]
    few, many = 100, 300
    each = (instructions(program, many) - instructions(program, few)) / (many - few)
    print(f"{each:.0f} instructions a step")
    print(subprocess.run([program, "1000"], capture_output=True, text=True, check=True).stdout.strip())
    # Less than a hundred each would mean that nothing was scheduled.
    return 0 if 256 * 100 < each <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
