#!/usr/bin/env python3
"""Compiles and runs the programs of chapter 21 and writes what they say into measured.json, from which the chapter takes it.

usage: measure.py [PART...] [--fathom PROGRAM]     (some three minutes on a quiet machine; g++, valgrind, gprof and perf)
A part is a function below, such as skid; without one all are measured. `fathom` takes the program.
"""
import argparse
import collections
import datetime
import json
import pathlib
import platform
import re
import statistics
import subprocess
import tempfile
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
FLAGS = ["-std=c++20", "-O2", "-g", "-fno-omit-frame-pointer", "-rdynamic"]


def run(*command, cwd=None):
    return subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=True).stdout


def compiled(name, folder, *flags):
    program = pathlib.Path(folder) / name
    run("g++", *FLAGS, *flags, HERE / f"{name}.cpp", "-o", program)
    return program


def shares(folder, profiles=50, samples=100):
    program, found = compiled("shares", folder), {"profiles": profiles, "samples": samples}
    for order in ("shuffled", "sorted", "lockstep"):
        counts = [int(line) for line in run(program, order, profiles, samples).split()]
        found[order] = {"mean": statistics.mean(counts) / samples, "sd": statistics.stdev(counts) / samples,
                        "low": min(counts) / samples, "high": max(counts) / samples}
    return found


def callgrind(program, *arguments, collect, folder):
    """Instructions of each function, and what the program printed."""
    out = pathlib.Path(folder) / "callgrind.out"
    printed = run("valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}", f"--toggle-collect={collect}", program, *arguments)
    text = run("callgrind_annotate", "--threshold=100", out)
    return {name: int(count.replace(",", ""))
            for count, name in re.findall(r"^ *([\d,]+) \([ \d.]+%\)  (?!=>)\S*:(\w+) \[", text, re.M)}, printed


def two_costs(folder):
    """Samples of a long run, then a short one: seconds by its own clock, without and with Callgrind, and instructions."""
    program = compiled("two_costs", folder)
    samples, follow, mix, follow_s, mix_s, _ = run(program).split()
    seconds = [float(s) for s in run(program, "short").split()[3:5]]
    counted, printed = callgrind(program, "short", collect="work", folder=folder)
    watched = [float(s) for s in printed.split()[3:5]]
    return {"samples": int(samples),
            "follow": {"samples": int(follow), "s": float(follow_s), "instructions": counted["follow"], "short_s": seconds[0], "watched_s": watched[0]},
            "mix": {"samples": int(mix), "s": float(mix_s), "instructions": counted["mix"], "short_s": seconds[1], "watched_s": watched[1]}}


def callers(folder):
    found = {"tables": {}, "frames": {}}
    for line in run(compiled("callers", folder)).splitlines():
        how, stack, count = line.split()
        found[how][stack] = int(count)
    program = pathlib.Path(folder) / "callers_gprof"
    run("g++", "-std=c++20", "-O2", "-DGPROF", "-pg", HERE / "callers.cpp", "-o", program)
    run(program, cwd=folder)
    graph = run("gprof", "-b", "-q", program, pathlib.Path(folder) / "gmon.out")
    # What `fill` gives to each of its callers, in hundredths of a second, which are gprof's samples.
    found["gprof"] = {f"main;{caller};fill": round(100 * float(seconds)) for seconds, caller in
                      re.findall(r"^ +([\d.]+) +[\d.]+ +\d+/\d+ +(rarely|often) \[\d+\]$", graph.split("[1]")[0], re.M)}
    found["calls"] = {caller: int(calls) for calls, caller in re.findall(r" (\d+)/\d+ +(rarely|often) \[\d+\]$", graph.split("[1]")[0], re.M)}
    return found


def perf(folder):
    """What `perf record` makes of the same program, without hardware counters: two ways to walk a stack. And what it cannot count."""
    program, data, found = compiled("callers", folder), pathlib.Path(folder) / "perf.data", {}
    for way in ("fp", "dwarf"):
        run("perf", "record", "-q", "-e", "cpu-clock:u", "-F", "250", "--call-graph", way, "-o", data, program)
        stacks = collections.Counter()
        for sample in re.split(r"\n\s*\n", run("perf", "script", "-i", data, "-F", "ip,sym")):
            names = [word for word in sample.split() if word in ("main", "often", "rarely", "fill")]
            stacks[";".join(reversed(names))] += 1
        found[way] = {stack: count for stack, count in stacks.items() if stack.endswith("fill")}
    said = subprocess.run(["perf", "stat", "-e", "cycles,instructions,cache-misses,task-clock", "true"], capture_output=True, text=True).stderr
    (HERE / "perf_stat.txt").write_text("$ perf stat -e cycles,instructions,cache-misses,task-clock true\n\n" + "".join(
        line.partition("#")[0].rstrip() + "\n" for line in said.splitlines() if "supported" in line or "task-clock" in line))
    return found


def skid(folder):
    program = compiled("skid", folder)
    counts = {int(at): int(count) for at, count in (line.split() for line in run(program).splitlines())}
    code = instructions(program, "divide")
    at = next(i for i, (_, text) in enumerate(code) if text.startswith("div "))
    end = next(i for i, (_, text) in enumerate(code) if text.startswith("jne ") and i > at)
    (HERE / "skid.txt").write_text("samples   instruction\n" + "".join(
        f"{counts.get(offset, 0):7}   {text}\n" for offset, text in code[at - 1 : end + 1]))
    return {"samples": sum(counts.values()), "div": counts.get(code[at][0], 0), "next": counts.get(code[at + 1][0], 0)}


def instructions(program, function):
    """(offset, text) of each instruction."""
    code = run("objdump", "-d", "--no-show-raw-insn", f"--disassemble={function}", program)
    found = [(int(at, 16), re.sub(r"\s+", " ", text.partition("<")[0].strip())) for at, text in re.findall(r"^ +([0-9a-f]+):\t(.*)$", code, re.M)]
    return [(at - found[0][0], text) for at, text in found]


def between_ticks(folder, ticks=1000):
    program, found = compiled("between_ticks", folder), {"ticks": ticks}
    for where in (0, 25, 50, 75):
        seconds, samples = run(program, where / 100, ticks).split()
        data = pathlib.Path(folder) / "perf.data"
        run("perf", "record", "-q", "-e", "cpu-clock:u", "-F", "250", "-o", data, program, where / 100, ticks, "watched")
        found[f"at{where}"] = {"s": float(seconds), "samples": int(samples), "perf": len(run("perf", "script", "-i", data, "-F", "ip").split())}
    return found


def clock_steps(folder):
    """Different readings of two clocks of CPU time, without and beside a sampling timer."""
    process, thread = (map(int, line.split()) for line in run(compiled("clock_steps", folder)).splitlines())
    return {name: dict(zip(("alone", "beside"), of)) for name, of in (("process", process), ("thread", thread))}


def probed(folder):
    return {f"n{n}": {"plain_ns": float(plain), "probed_ns": float(with_probes), "said_ns": float(said)}
            for n, plain, with_probes, said in (line.split() for line in run(compiled("probed", folder)).splitlines())}


def strides(folder):
    """Reads and misses of the line with the array under Cachegrind, in a cache of 8 sets of 2 lines of 64 bytes."""
    program, found = compiled("strides", folder), {}
    for stride in (1, 2, 16, 17, 128):
        out = pathlib.Path(folder) / "cachegrind.out"
        run("valgrind", "-q", "--tool=cachegrind", "--D1=1024,2,64", f"--cachegrind-out-file={out}", program, stride)
        line = re.search(r"^ *([\d,]+) \([ \d.]+%\) +([\d,]+) \([ \d.]+%\) .*sum \+= place", run("cg_annotate", "--show=Dr,D1mr", out), re.M)
        found[f"stride{stride}"] = {"reads": int(line[1]), "misses": int(line[2])}
    return found


def fathom(folder, program):
    """What `fathom run --profile` says of case 1's loop."""
    run(program.resolve(), "run", "ch08:decaying_state", "-a", "tokens=4096", "--quick", "--profile", "--artifacts-dir", folder, cwd=folder)
    found, shown = {}, ""
    for variant in ("as_found", "flush_to_zero"):
        path = next(pathlib.Path(folder).glob(f"**/decaying_state/{variant}/functions_*.json"))
        profile = json.loads(path.read_text())
        found[variant] = {key: profile[key] for key in ("calls", "samples", "cpu_ns", "waits")} | {
            "loop": sum(f["samples"] for f in profile["functions"] if variant in f["name"]),
            "write": sum(f["samples"] for f in profile["functions"] if f["name"].startswith("__write "))}
        text, seldom = path.with_suffix(".md").read_text(), sum(f["samples"] == 1 for f in profile["functions"])
        text = re.sub(r"^\|[^|]*\| 1 \|.*\n", "", text, flags=re.M).rstrip()
        shown += "\n".join(textwrap.fill(line, 68) for line in text.split("\n")) + "\n"
        shown += f"  (and {seldom} functions with one sample each)\n\n" if seldom else "\n"
    doctor = run(program.resolve(), "doctor", cwd=folder)
    lines = re.sub(r"\n {16,}", " ", doctor[doctor.index("Profiling capabilities"):].partition("\n\n")[0]).splitlines()
    (HERE / "doctor.txt").write_text("$ fathom doctor\n…\n" + "".join(
        textwrap.fill(re.sub(r"(?<=\S) {2,}", "  ", line), 68, subsequent_indent="        ") + "\n" for line in lines))
    (HERE / "profile.txt").write_text(shown.rstrip() + "\n")
    return found


PARTS = {part.__name__: part for part in (two_costs, shares, callers, perf, skid, between_ticks, clock_steps, probed, strides, fathom)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []])
    parser.add_argument("--fathom", type=pathlib.Path)
    wanted = parser.parse_args()
    path = HERE / "measured.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    found |= {"machine": "2 cores of a Zen 4 (EPYC, virtual)", "date": datetime.date.today().isoformat(),
              "kernel": platform.release().split("-")[0], "compiler": run("g++", "-dumpfullversion").strip(), "flags": " ".join(FLAGS)}
    for name in wanted.parts or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            if name != "fathom":
                found[name] = PARTS[name](folder)
            elif wanted.fathom:
                found[name] = fathom(folder, wanted.fathom)
    path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
