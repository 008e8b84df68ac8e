"""The records under results/, as tools/results_table and tools/results_pictures read them."""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
# Its sources are the whole engine with its GPU kernels: the hash by which engine.json is found stale.
ENGINE_SESSION = "ch12/graph_replay"


def known_experiments(program):
    """Every experiment of the program, by id, with its backend and the hash of today's sources."""
    listed = subprocess.run([program, "list", "--json"], capture_output=True, text=True)
    if listed.returncode != 0:
        sys.exit(f"{program} list --json failed; build it first (make build): {listed.stderr.strip()}")
    return {experiment["id"]: experiment for experiment in json.loads(listed.stdout)["experiments"]}


class Record:
    """One file of results/<machine>/<chapter>/."""

    def __init__(self, path, known):
        file = json.loads(path.read_text())
        self.experiment = file["experiments"][0]
        self.id = self.experiment["id"]
        self.facts = file["manifest"]["machine"]
        self.commit = file["provenance"]["commit"]
        self.date = file["provenance"]["written_at"][:10]
        today = known.get(self.id)
        self.stale = today is None or today["source_hash"] != self.experiment.get("source_hash")


def machines():
    return sorted((folder.name for folder in RESULTS.iterdir() if folder.is_dir()), key=lambda name: ("epyc" in name, name))


def records(machine, known):
    return [Record(path, known) for path in sorted((RESULTS / machine).glob("*/**/*.json"))]  # labs/matmul/bf16.json lies deeper


def engine(machine):
    """What tools/measure_engine wrote, or None."""
    path = RESULTS / machine / "engine.json"
    return json.loads(path.read_text()) if path.exists() else None


def more_engines(machine):
    """The same of other settings or models: engine_tp2.json, .."""
    return [json.loads(path.read_text()) for path in sorted((RESULTS / machine).glob("engine_*.json"))]


def load_beside(seen, load):
    """One load of the engines beside each other (docs/records.md, fathom.engine_measured/2), or None."""
    return next((entry for entry in seen.get("beside", {}).get("loads", []) if entry["load"] == load and entry["quantities"]), None)


def others_beside(seen, load, quantity):
    """(name and version, {median, lo, hi}, ratio) of every other engine that gave this quantity."""
    entry = load_beside(seen, load)
    if not entry:
        return []
    # "0.26.0, torch 2.11", or llama.cpp's "version: 0.5.0-dev (build 1, commit 0c1e570)"
    versions = {engine["name"]: re.split("[,(]", engine.get("version", "").removeprefix("version: "))[0].strip() for engine in seen["beside"]["engines"]}
    found = entry["quantities"][quantity]
    return [(f"{name} {versions[name]}", of, found["ratios"][name]) for name, of in found["engines"].items() if name != "fathom"]


def settled(of):
    """Whether the samples agree well enough to name a rate: an engine that still compiles, or a difference of two times that is
    nearly zero, has samples far apart."""
    return of["hi"] <= 2 * of["lo"]


def of_ours(seen, load, quantity):
    """What our own engine gave of it in the same rounds."""
    return load_beside(seen, load)["quantities"][quantity]["engines"]["fathom"]


def aa(machine):
    """What `fathom run --aa --record` wrote there, or None."""
    path = RESULTS / machine / "aa.json"
    return json.loads(path.read_text()) if path.exists() else None


def gpu_tests(machine):
    """What tools/gpu_tests wrote there: one file for each number of GPUs."""
    return [json.loads(path.read_text()) for path in sorted((RESULTS / machine).glob("gpu_tests*.json"))]


def sanitizer(machine):
    """What tools/sanitize wrote there."""
    return [json.loads(path.read_text()) for path in sorted((RESULTS / machine).glob("sanitizer*.json"))]


def engine_is_stale(seen, known):
    return seen.get("source_hash") is None or seen["source_hash"] != known[ENGINE_SESSION]["source_hash"]


def read_roof(machine):
    """What can be read from DRAM, bytes/s: the control in the rounds of ch08/reduction on that machine."""
    record = json.loads((RESULTS / machine / "ch08" / "reduction.json").read_text())
    return record["experiments"][0]["points"][0]["variants"][0]["limit_rate"]


def decode_share(batch, machine):
    return batch["decode_share_of_read_bandwidth"] or batch["decode_bytes_per_s"] / read_roof(machine)


def timed(point):
    """The variants of a point that were measured and right."""
    return [v for v in point["variants"] if v["status"] == "ok" and v.get("time_ns") and v.get("verdict") != "INVALID"]


def median(variant):
    return variant["time_ns"]["median"]


def kinds(point):
    """Whose code each variant is, by id: a variant of ours may still be one call of a library, which its idea names."""
    named, called = {}, ""
    for variant in point["variants"]:
        kind, idea = {"optimized": "ours"}.get(variant["kind"], variant["kind"]), variant.get("idea", "")
        if kind in ("ours", "baseline"):
            if re.search("cublas", idea, re.I):
                called = ", calls cuBLAS"
                kind += called
            elif "the same call" in idea:
                kind += called
        named[variant["id"]] = kind
    return named


def time_text(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def count(number):
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def write_or_check(files, tool):
    """Writes the texts, or with --check fails where a file differs."""
    if "--check" not in sys.argv:
        for path, text in files.items():
            path.write_text(text)
        return
    stale = [str(path.relative_to(ROOT)) for path, text in files.items() if not path.exists() or path.read_text() != text]
    if stale:
        sys.exit(f"{', '.join(stale)}: not what results/ and today's sources say; run {tool}")
    print(f"{', '.join(str(path.relative_to(ROOT)) for path in files)}: as results/ and today's sources say")


def program():
    """The built program: the argument that is no flag, or build/release/fathom."""
    given = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    return given[0] if given else str(ROOT / "build/release/fathom")
