#!/usr/bin/env python3
"""What optimisations save, counted: the instructions and the misses of a simulated cache that one call of a variant takes,
against its baseline's at the same point. The counts are the same on a busy machine; the caches are those given below.
usage: variant_cost_test.py VARIANT_COST

A bound is about two thirds of what g++ 12 gives, so another compiler passes, and a loop without its vectors, its
blocks or its batch fails."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIP = 77
CACHES = ["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,16,64"]
# Result, what is counted, at least so many times less than the baseline.
SAVED = (
    ("ch01/gemm_batched_cpu/batched?size=8&batch=16", "instructions", 4.5),
    ("ch08/simd_dot/omp_simd?n=4096", "instructions", 2.5),
    ("ch08/simd_dot/highway?n=4096", "instructions", 4.5),
    ("ch08/autovectorization/restricted?n=128", "instructions", 1.5),
    ("ch08/autovectorization/associative?n=128", "instructions", 5),
    ("ch08/branch_predication/compressed?n=4096", "instructions", 2.5),
    ("ch09/low_rank_matvec_cpu/factored?n=256&rank=8", "instructions", 1.9),
    ("ch09/sparse_matvec_cpu/csr?n=256&pattern=scattered&density=0.01", "instructions", 2.2),
    ("ch15/sparse_activation_cpu/routed_grouped?tokens=16", "instructions", 5),
    ("ch01/mlp_batched_cpu/batched?samples=6", "misses", 2.5),
    ("ch02/stride/row_order?n=256", "misses", 10),
    ("ch07/aos_soa_cpu/soa?n=16384", "misses", 2.2),
    ("ch07/gather_sorted/sorted?n=32768", "misses", 3.5),
    ("ch07/transpose_cpu/tiled?n=256", "misses", 5.5),
    ("ch09/matmul_cpu/tiled?n=192", "misses", 7),
)
ITSELF = "ch08/simd_dot/scalar?n=4096"  # a baseline, counted twice


def counts(program, ids):
    """{name of a dump: {"instructions": n, "misses": n}}"""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["valgrind", "--tool=callgrind", *CACHES, f"--callgrind-out-file={folder}/dump", program, *ids],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        found = {}
        for file in pathlib.Path(folder).iterdir():
            text = file.read_text(errors="replace")
            name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.M)
            if not name:
                continue  # what was left when the program ended
            events = re.search(r"^events: (.*)$", text, re.M).group(1).split()
            totals = re.search(r"^(?:totals|summary): (.*)$", text, re.M).group(1).split()
            cost = dict.fromkeys(events, 0) | dict(zip(events, map(int, totals)))  # zeros at the end are left out
            found[name.group(1)] = {"instructions": cost["Ir"], "misses": cost["D1mr"] + cost["D1mw"]}
        return found


def main():
    if not shutil.which("valgrind"):
        print("skipped: valgrind is not installed (packages-test.txt)")
        return SKIP
    if "avx2" not in pathlib.Path("/proc/cpuinfo").read_text():
        print("skipped: experiments are compiled for x86-64-v3")
        return SKIP
    found = counts(sys.argv[1], [ITSELF] + [id for id, _, _ in SAVED])
    if found["baseline of " + ITSELF]["instructions"] != found[ITSELF]["instructions"]:
        print(f"{ITSELF}: two calls differ, so a dump does not hold one call: {found[ITSELF]}")
        return 1
    lost = 0
    for id, what, least in SAVED:
        baseline, variant = found["baseline of " + id][what], found[id][what]
        saved = baseline / variant
        lost += saved < least
        print(f"{id}: {variant} {what}, {saved:.1f} times less than the baseline's {baseline}"
              + ("" if saved >= least else f"; at least {least} was expected"))
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
