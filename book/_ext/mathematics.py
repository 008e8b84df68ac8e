"""Formulas are set at build time by KaTeX (Debian's libjs-katex), so that a page needs no script for them."""
import json
import pathlib
import shutil
import subprocess

from docutils.nodes import SkipNode
from sphinx.errors import ExtensionError
from sphinx.util.math import get_node_equation_number

KATEX = pathlib.Path("/usr/share/javascript/katex")  # Debian's libjs-katex

# Run by any node: named by its file, as a node that is not Debian's does not look into Debian's folder of modules.
# Reads a JSON string a line, answers with the HTML as a JSON string.
PROGRAM = f"const katex = require('{KATEX}/katex.min.js');" + """
const lines = require('readline').createInterface({input: process.stdin});
lines.on('line', line => {
  const {tex, block, output} = JSON.parse(line);
  try { console.log(JSON.stringify({html: katex.renderToString(tex, {displayMode: block, output, throwOnError: true, strict: 'error'})})); }
  catch (error) { console.log(JSON.stringify({error: String(error.message)})); }
});
"""


class Setter:
    def __init__(self):
        self.process, self.known = None, {}

    def html(self, tex, block, output="htmlAndMathml"):
        if (tex, block, output) not in self.known:
            if not self.process:
                self.process = subprocess.Popen(["node", "-e", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.process.stdin.write(json.dumps({"tex": tex, "block": block, "output": output}) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline() or '{"error": "node ended; what it printed stands above"}')
            if "error" in answer:
                raise ExtensionError(f"KaTeX refuses '{tex}': {answer['error']}")
            self.known[tex, block, output] = answer["html"]
        return self.known[tex, block, output]


setter = Setter()


def output_of(builder):
    """An e-book's reader sets MathML by itself; KaTeX's own setting needs its fonts and style sheet."""
    return "mathml" if builder.name == "epub" else "htmlAndMathml"


def visit_inline(self, node):
    self.body.append(f'<span class="math">{setter.html(node.astext(), False, output_of(self.builder))}</span>')
    raise SkipNode


def visit_block(self, node):
    number = ""
    if node["number"]:
        number = f'<span class="eqno">({get_node_equation_number(self, node)})</span>'
    ids = f' id="{node["ids"][0]}"' if node["ids"] else ""
    self.body.append(f'<div class="math block"{ids}>{setter.html(node.astext(), True, output_of(self.builder))}{number}</div>')
    raise SkipNode


def copy_fonts(app, error):
    """The style sheet, and its fonts in the one format that every browser reads."""
    if error or app.builder.format != "html":
        return
    to = pathlib.Path(app.outdir) / "_static/katex"
    (to / "fonts").mkdir(parents=True, exist_ok=True)
    shutil.copy(KATEX / "katex.min.css", to)
    for font in (KATEX / "fonts").glob("*.woff2"):
        shutil.copy(font, to / "fonts")


def setup(app):
    app.connect("build-finished", copy_fonts)
    app.add_html_math_renderer("katex_at_build", (visit_inline, None), (visit_block, None))
