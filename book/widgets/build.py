#!/usr/bin/env python3
"""Makes build/book/widgets/<id>.js of each widget: the C++ model as WebAssembly, the kit, and the widget's page part.

usage: build.py

A widget <id> is book/widgets/<id>.cpp (what the page calls), the model in src/book/ that it includes, and <id>.js. The
result is one classic script, with the module inside as base64: it runs from a folder, where a page may fetch nothing.
"""
import base64
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "book/widgets"
OUT = ROOT / "build/book/widgets"
sys.path.insert(0, str(ROOT / "book/_ext"))

from records import REFERENCE, Records  # noqa: E402

COMPILER = "clang-14"
FLAGS = ["--target=wasm32", "-std=c++20", "-O2", "-ffreestanding", "-nostdlib", "-fno-exceptions", "-fno-rtti", "-mbulk-memory",
         "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-Wl,--no-entry", "-Wl,--strip-all"]
LARGEST = 64 << 10  # Chromium compiles no larger module at once on a page's main thread without a pause that one feels


def sources(main):
    """The widget's C++ file and the model of each header of src/book/ that it includes."""
    models = [ROOT / "src" / header.replace(".h", ".cpp") for header in re.findall(r'#include "(book/\w+\.h)"', main.read_text())]
    return [main, *models]


def module(main):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "module.wasm"
        built = subprocess.run([COMPILER, *FLAGS, "-I", ROOT / "src", *sources(main), "-o", out], capture_output=True, text=True)
        if built.returncode != 0:
            raise SystemExit(f"{main.relative_to(ROOT)}: {COMPILER} failed:\n{built.stderr}")
        return out.read_bytes()


def ceilings():
    """Each limit that the reference machines' records name: the median of its measured rates, and how many records say so."""
    records = Records(program=None)
    return {f"{short}: {name}": {"rate": statistics.median(rates), "points": len(rates)}
            for short, machine in REFERENCE.items() for name, rates in records.ceilings(machine).items()}


def script(page):
    wasm = module(page.with_suffix(".cpp"))
    if len(wasm) > LARGEST:
        raise SystemExit(f"{page.name}: a module of {len(wasm)} bytes; at most {LARGEST}")
    style = "".join(line.strip() for line in (HERE / "kit.css").read_text().splitlines() if not line.startswith("/*"))
    records = [f"const CEILINGS = {json.dumps(ceilings())};"] if "CEILINGS" in page.read_text() else []
    return "\n".join(['(function () {', '"use strict";', f"const STYLE = {json.dumps(style)};",
                      f'const MODULE = "{base64.b64encode(wasm).decode()}";', *records, (HERE / "kit.js").read_text(), page.read_text(), "})();\n"])


def main():
    if not shutil.which(COMPILER) or not shutil.which("wasm-ld-14"):
        raise SystemExit("the widgets need clang-14 and lld-14: tools/install_packages packages-book.txt")
    OUT.mkdir(parents=True, exist_ok=True)
    pages = {page.stem: page for page in sorted(HERE.glob("*.js")) if page.stem != "kit"}
    for old in OUT.glob("*.js"):
        if old.stem not in pages:
            old.unlink()
    for name, page in pages.items():
        (OUT / f"{name}.js").write_text(script(page))


if __name__ == "__main__":
    sys.exit(main())
