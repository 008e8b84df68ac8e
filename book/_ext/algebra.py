"""The book's Sphinx extension: numbers and figures from records, predictions, exercises, widgets, listings."""
import html
import importlib.util
import json
import pathlib
import re
import textwrap
import urllib.parse

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

import figures
import flame
import keys
import mathematics
import typed_numbers
import xhtml
from records import EVALUATIONS, REFERENCES, ROOT, ReadersRecords, Records, Unknown, evaluation, evaluation_text, value_in

logger = logging.getLogger(__name__)
BOOK = ROOT / "book"


def records_of(env):
    """One reading of results/ for each build."""
    if not hasattr(env.app, "book_records"):
        env.app.book_records = Records()
    return env.app.book_records


def readers_records_of(app):
    if not hasattr(app, "book_readers_records"):
        app.book_readers_records = ReadersRecords()
    return app.book_readers_records


def kept(env, name):
    """What an incremental build still has to know of each page: a dictionary from its name."""
    if not hasattr(env, "book_" + name):
        setattr(env, "book_" + name, {})
    return getattr(env, "book_" + name)


class measured(nodes.inline):
    """A number that came from a record, a citation or an assumption: the lint leaves it alone."""


class from_html(nodes.General, nodes.Element):
    """Finished HTML, for the HTML builders and EPUB."""


def html_block(text, **attributes):
    node = from_html()
    node["html"] = text
    node.attributes.update(attributes)
    return node


# ---- roles ----


class RecordRole(SphinxRole):
    """{num} and {calc}: see records.py."""

    def __init__(self, calculated):
        super().__init__()
        self.calculated = calculated

    def run(self):
        try:
            records = records_of(self.env)
            text = records.calculate(self.text)[1] if self.calculated else records.text(self.text)
            node = measured("", text, classes=["record-number"], title=self.text)
            if records.any_stale(self.text):
                node["classes"].append("stale-number")
                node["title"] += " (stale: the sources have changed since)"
            return [node], []
        except (Unknown, SyntaxError, ZeroDivisionError) as error:
            return [], [self.inliner.reporter.error(f"{self.text}: {error}", line=self.lineno)]


class EvaluationRole(SphinxRole):
    """{eval}`kv_fp8 divergence.kl`: what models/tiny/eval_kv_fp8.json says of the small model."""

    def run(self):
        name, _, field = self.text.partition(" ")
        try:
            text = evaluation_text(evaluation(name, field.strip()))
        except Unknown as error:
            return [], [self.inliner.reporter.error(f"{self.text}: {error}", line=self.lineno)]
        path = EVALUATIONS / f"eval_{name}.json"
        self.env.note_dependency(str(path))
        return [measured("", text, classes=["record-number"], title=f"{path.relative_to(ROOT)}: {field}")], []


class CitedRole(SphinxRole):
    """{cited}`4.8 TB/s [h200-datasheet]`: a figure from elsewhere, with its entry in references.md."""

    def run(self):
        match = re.fullmatch(r"(.*?)\s*\[([\w-]+)\]", self.text, re.S)
        if not match:
            return [], [self.inliner.reporter.error(f"'{self.text}' names no reference in [brackets]", line=self.lineno)]
        text, key = match.groups()
        if key not in references():
            return [], [self.inliner.reporter.error(f"no reference '{key}' in book/references.md", line=self.lineno)]
        depth = self.env.docname.count("/")
        link = nodes.reference("", f"[{key}]", refuri="../" * depth + f"references.html#{key}", internal=True)
        return [measured("", text, nodes.Text("\u202f"), nodes.superscript("", "", link))], []


class GivenRole(SphinxRole):
    """{given}`4 ns`: a constant that an example assumes."""

    def run(self):
        return [measured("", self.text)], []


def references():
    """Keys are the terms `(key)=` before entries of references.md."""
    path = BOOK / "references.md"
    return set(re.findall(r"^\(([\w-]+)\)=", path.read_text(), re.M)) if path.exists() else set()


# ---- figures and numbers ----


def pairs(text):
    """`k=v&k=v`, or with commas."""
    return dict(part.split("=", 1) for part in re.split(r"[&,\s]+", text) if part)


class RecordFigure(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec = {"experiment": directives.unchanged_required, "machines": directives.unchanged, "x": directives.unchanged,
                   "y": directives.unchanged, "at": directives.unchanged, "variants": directives.unchanged,
                   "roofs": directives.unchanged, "alt": directives.unchanged_required, "name": directives.unchanged_required}

    def run(self):
        def split(name, default="", by=","):
            return [part.strip() for part in self.options.get(name, default).split(by) if part.strip()]

        kind = self.arguments[0]
        field = self.options.get("y", "flops_per_s" if kind == "roofline" else "time")
        for needed in ("experiment", "alt", "name"):
            if needed not in self.options:
                raise self.error(f"record-figure wants :{needed}:")
        if kind not in ("ladder", "bars", "curve", "roofline"):
            raise self.error(f"record-figure knows ladder, bars, curve and roofline, not '{kind}'")
        if kind == "roofline" and field != "flops_per_s":
            raise self.error("a roofline's :y: is flops_per_s")
        if kind == "curve" and "x" not in self.options:
            raise self.error("a curve wants :x:, the axis")
        at = {"": pairs(self.options.get("at", ""))}  # for all experiments, and below for each
        experiments = [part.partition("?") for part in split("experiment")]
        at.update({name: pairs(own) for name, _, own in experiments})
        names = [name for name, _, _ in experiments]
        about = (at, kind, field, self.options.get("x"), split("variants"), split("roofs", by="|"))
        records, panels = records_of(self.env), self.readers_panels(names, about)
        try:
            for machine in split("machines", "cpu"):
                panels.append(figures.panel(records, records.machine(machine), names, *about))
        except (ValueError, KeyError) as error:
            raise self.error(f"{self.options['name']}: {error}")
        return self.figure(panels)

    def figure(self, panels):
        """The node of a figure of these panels, with its caption."""
        figure = nodes.figure(classes=["record-figure", "wide"])
        figure += html_block(f'<div class=panels role=group aria-label="{html.escape(self.options["alt"], quote=True)}">'
                             + "".join(panels) + "</div>")
        caption = nodes.caption()
        inner, messages = self.state.inline_text(" ".join(self.content), self.lineno)
        caption += inner
        figure += caption
        self.add_name(figure)
        return [figure, *messages]

    def readers_panels(self, experiments, about):
        """The reader's own machines come first, on the site; the e-book and the print are for others too."""
        if self.env.app.builder.name != "html":
            return []
        records, shown = readers_records_of(self.env.app), kept(self.env, "shown").setdefault(self.env.docname, {})
        shown.update((experiment, records.stamps(experiment)) for experiment in experiments)
        return [figures.readers_panel(records, machine, experiments, *about) for machine in records.machines(experiments)]


class LedgerFigure(RecordFigure):
    """All predicted ratios of the machines' records against what was measured."""

    required_arguments = 0
    option_spec = {name: RecordFigure.option_spec[name] for name in ("machines", "alt", "name")}

    def run(self):
        records = records_of(self.env)
        return self.figure([figures.ledger_panel(records, records.machine(machine.strip()))
                            for machine in self.options["machines"].split(",")])


class FlameFigure(RecordFigure):
    """Flame graphs of what a chapter's own programs printed: `ch21 callers.tables = a title | ...`."""

    required_arguments = 0
    option_spec = {"alt": directives.unchanged_required, "name": directives.unchanged_required, "stacks": directives.unchanged_required}

    def run(self):
        records, panels = records_of(self.env), []
        for line in self.options["stacks"].split("|"):
            where, _, title = (part.strip() for part in line.partition("="))
            chapter, _, field = where.partition(" ")
            file = f"book/listings/{chapter}/measured.json"
            try:
                measured = records.measured(chapter)
                panels.append(flame.panel(value_in(measured, field, file), title, measured, file))
            except (Unknown, KeyError, TypeError, AttributeError) as error:
                raise self.error(f"{self.options['name']}: no stacks '{where}': {error!r}")
        return self.figure(panels)


# ---- blocks of text ----


class Block(SphinxDirective):
    """A box with a heading: law, proof, trap, question, summary, margin."""

    has_content = True
    optional_arguments = 1
    final_argument_whitespace = True
    heading = ""

    def run(self):
        box = nodes.container(classes=[self.name])
        title = " ".join(filter(None, (self.heading, self.arguments[0] if self.arguments else "")))
        if title:
            inner, messages = self.state.inline_text(title, self.lineno)
            box += nodes.paragraph("", "", *inner, classes=["box-title"])
        self.state.nested_parse(self.content, self.content_offset, box)
        return [box]


def block(heading):
    return type("Block" + heading.strip(":. "), (Block,), {"heading": heading})


class Fold(Block):
    """{hint} and {solution}: closed until asked for; works without JavaScript."""

    def run(self):
        return [html_block(f"<details class={self.name}><summary>{self.name.capitalize()}</summary>"), *super().run()[0].children,
                html_block("</details>")]


class Predict(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec = {"question": directives.unchanged_required, "unit": directives.unchanged, "answer": directives.unchanged_required}

    def run(self):
        expression = self.options["answer"].strip()
        if not re.search(r"\b(?:num|count|output)\(", expression):
            expression = f'num("{expression}")'
        try:
            value, text = records_of(self.env).calculate(expression)
        except (Unknown, SyntaxError) as error:
            raise self.error(f"{self.arguments[0]}: {error}")
        inner, messages = self.state.inline_text(self.options["question"], self.lineno)
        unit = html.escape(self.options.get("unit", ""))
        name = html.escape(self.arguments[0], quote=True)
        about = " ".join(dict.fromkeys(":".join(records_of(self.env).parse(found)[:2]) for found in REFERENCES.findall(expression)))
        form = (f'<form class=guess data-guess="{name}" data-answer="{value:.6g}" data-about="{html.escape(about)}"><label>Your prediction '
                f'<input inputmode=decimal autocomplete=off size=8 aria-label="prediction"> {unit}</label> '
                f'<button>See</button> <output></output></form><details class=answer data-of="{name}"><summary>What was measured</summary>')
        box = nodes.container(classes=["predict"])
        box += nodes.paragraph("", "", *inner, classes=["box-title"])
        box += html_block(form)
        shown = nodes.paragraph("", "", measured("", f"{text} {self.options.get('unit', '')}".strip(), classes=["record-number"]))
        box += shown
        self.state.nested_parse(self.content, self.content_offset, box)
        box += html_block("</details>")
        return [box, *messages]


class Exercise(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec = {"type": directives.unchanged_required, "solver": directives.unchanged_required, "tolerance": float,
                   "unit": directives.unchanged, "options": directives.unchanged, "labels": directives.unchanged}

    def run(self):
        name, kind = self.arguments[0], self.options.get("type", "number")
        if kind not in ("number", "numbers", "choice"):
            raise self.error(f"exercise {name}: no type '{kind}'; there are number, numbers, choice")
        try:
            self.env.note_dependency(str(BOOK / "exercises" / self.options["solver"].partition(":")[0]))
            key = solve(self.options["solver"])
        except (OSError, AttributeError, AssertionError) as error:
            raise self.error(f"exercise {name}: the solver {self.options['solver']} failed: {error!r}")
        unit, tolerance = html.escape(self.options.get("unit", "")), self.options.get("tolerance", 0.01)
        options = [option.strip() for option in self.options.get("options", "").split("|")]
        solution = records_of(self.env).computed("\n".join(self.content).partition("{solution}")[2])
        if not keys.states(solution, key, tolerance, options):
            raise self.error(f"exercise {name}: its solution does not state the key that {self.options['solver']} computes, {key!r}")
        box = nodes.container(classes=["exercise"], ids=[name.replace(".", "-")])
        box += nodes.paragraph("", f"Exercise {name.removeprefix('ch').lstrip('0')}", classes=["box-title"])
        parts = list(split_folds(self.content))
        question, folds = parts[0], parts[1:]
        self.state.nested_parse(question, self.content_offset, box)
        if kind == "choice":
            if key not in options:
                raise self.error(f"exercise {name}: the key '{key}' is none of the options")
            fields = "".join(f'<label><input type=radio name="{name}" value="{html.escape(o, quote=True)}"> {html.escape(o)}</label> '
                             for o in options)
            answers = json.dumps([key])
        else:
            values = list(key) if kind == "numbers" else [key]
            labels = [label.strip() for label in self.options.get("labels", "|" * (len(values) - 1)).split("|")]
            if len(labels) != len(values):
                raise self.error(f"exercise {name}: {len(values)} keys and {len(labels)} labels")
            fields = "".join(f'<label>{html.escape(label)} <input inputmode=decimal autocomplete=off size=10 '
                             f'aria-label="{html.escape(label or "answer", quote=True)}"> {unit}</label> ' for label in labels)
            answers = json.dumps([float(value) for value in values])
        box += html_block(f'<form class=answer-form data-exercise="{name}" data-kind={kind} data-tolerance="{tolerance}" '
                          f"data-key='{html.escape(answers, quote=True)}'>{fields}<button>Check</button> <output></output></form>")
        if kind == "choice":  # on paper and in an e-book, where there is no form
            box += html_block("<ul class=choices>" + "".join(f"<li>{html.escape(option)}</li>" for option in options) + "</ul>")
        for fold in folds:
            self.state.nested_parse(fold, self.content_offset, box)
        return [box]


def split_folds(content):
    """The question, then the nested directives with everything behind them."""
    for i, line in enumerate(content):
        if re.match(r"\s*:{3,}\{(hint|solution)\}", line):
            yield content[:i]
            yield content[i:]
            return
    yield content


def solve(solver):
    """A file and a function of it: the key of an exercise, computed and never typed."""
    file, _, function = solver.partition(":")
    path = BOOK / "exercises" / file
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.exists():
        raise OSError(f"no file book/exercises/{file}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)()


class Run(SphinxDirective):
    """The command that measures what a page shows. `fathom book --serve` runs its experiments, and no others."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        command = self.arguments[0]
        if not command.startswith("fathom run "):
            raise self.error("a run line begins with `fathom run`")
        known, experiments = {e for _, e in records_of(self.env).files}, []
        for target in command.split()[2:]:
            experiments.append(target.replace(":", "/", 1))
            if experiments[-1] not in known:
                raise self.error(f"no experiment '{target}' has a record; a run line names experiments that have")
        kept(self.env, "runs").setdefault(self.env.docname, []).extend(experiments)
        command += " --book"
        line = nodes.literal_block(command, command, classes=["run"])
        line["language"] = "console"
        return [html_block(f'<div class="run-line" data-experiments="{html.escape(" ".join(experiments), quote=True)}">'), line,
                html_block('<p class="run-note">Keeps the result for the book: the next <code>fathom book</code> draws your machine '
                           "first.</p></div>")]


class Listing(SphinxDirective):
    """Lines of a file that the lab compiles."""

    required_arguments = 1
    option_spec = {"from": directives.unchanged_required, "until": directives.unchanged_required, "caption": directives.unchanged}

    def run(self):
        path = ROOT / self.arguments[0]
        if not path.is_file():
            raise self.error(f"no file {self.arguments[0]}")
        self.env.note_dependency(str(path))
        lines = path.read_text().splitlines()
        begin = next((i for i, line in enumerate(lines) if self.options.get("from", "") in line), None)
        if begin is None:
            raise self.error(f"{self.arguments[0]} has no line with '{self.options['from']}'")
        end = next((i for i in range(begin, len(lines)) if self.options.get("until", "\0") in lines[i]), len(lines) - 1)
        text = textwrap.dedent("\n".join(lines[begin : end + 1]))
        shown = nodes.literal_block(text, text, language={".json": "json", ".py": "python", ".txt": "none"}.get(path.suffix, "c++"))
        source = nodes.paragraph("", f"{self.arguments[0]}, line {begin + 1}", classes=["listing-source"])
        return [shown, source]


class Widget(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec = {"state": directives.unchanged}

    def run(self):
        box = nodes.container(classes=["widget"])
        name, state = self.arguments[0], self.options.get("state", "")
        path = ROOT / "build/book/widgets" / f"{name}.js"
        if path.exists():  # made by book/widgets/build.py; without it the text alone stands
            self.env.note_dependency(str(path))
            script, tag = path.read_text(), "fathom-" + name.replace("_", "-")
            for key, _ in urllib.parse.parse_qsl(state, keep_blank_values=True):
                if f'key: "{key}"' not in script:
                    raise self.error(f"widget {name} has no '{key}' in its state; it has "
                                     + ", ".join(re.findall(r'key: "(\w+)"', script)))
            element = from_html(page_only=True)
            element["html"] = f'<{tag} data-state="{html.escape(state, quote=True)}"></{tag}>'
            if name not in self.env.temp_data.setdefault("widgets", set()):  # a page's second one needs no second script
                self.env.temp_data["widgets"].add(name)
                element["html"] += "<script>" + script.replace("</", "<\\/") + "</script>"
            box += element
        self.state.nested_parse(self.content, self.content_offset, box)
        return [box]


# ---- writing ----


def visit_html(self, node):
    self.body.append(node["html"])
    raise nodes.SkipNode


def visit_epub(self, node):
    if not node.get("page_only"):  # an e-book's reader runs no scripts
        self.body.append(xhtml.xhtml(node["html"]))
    raise nodes.SkipNode


def visit_measured(self, node):
    attributes = {"title": node["title"]} if node.get("title") else {}
    self.body.append(self.starttag(node, "span", "", **attributes))


def depart_measured(self, _):
    self.body.append("</span>")


def skip(self, node):
    raise nodes.SkipNode


def keep_together(app, doctree):
    """No line breaks between a formula and the punctuation beside it, or before the number of a source."""
    for node in doctree.findall(lambda node: isinstance(node, (nodes.math, measured))):
        parent, i = node.parent, node.parent.index(node)
        before, after = (parent[j] if 0 <= j < len(parent) and isinstance(parent[j], nodes.Text) else "" for j in (i - 1, i + 1))
        if isinstance(node, nodes.math):
            if before.endswith(("(", "[", "\u201c")):
                parent[i - 1] = nodes.Text(before + "\u2060")
            if after[:1] in tuple(".,;:?!)]\u2019\u201d"):
                parent[i + 1] = nodes.Text("\u2060" + after)
        elif before.endswith(" ") and node.astext().startswith("\u202f"):
            parent[i - 1] = nodes.Text(before[:-1] + "\u00a0")


def check_typed_numbers(app, doctree):
    for line, text, found in typed_numbers.find(doctree, (measured, from_html)):
        logger.warning("a measured number is typed by hand: '%s' in '%s'; take it from a record ({num}, {calc}), or mark it "
                       "{cited} or {given}", found, text, location=(app.env.docname, line), type="book", subtype="typed")


# ---- incremental builds: `fathom book --serve` builds again only the pages that a changed record concerns ----


def note_records(app, _):
    """A page depends on the project's records that it states."""
    used = records_of(app.env).used
    for path in used:
        app.env.note_dependency(path)
    used.clear()


def with_changed_records(app, env, *_):
    """Pages whose figures would show other records of the reader than they do. A record that comes is no dependency yet."""
    if app.builder.name != "html":
        return []
    records = readers_records_of(app)
    return [page for page, shown in kept(env, "shown").items()
            if any(records.stamps(experiment) != stamps for experiment, stamps in shown.items())]


def forget(_, env, page):
    for name in ("shown", "runs"):
        kept(env, name).pop(page, None)


def write_runs(app, error):
    """runs.json: the experiments of all run lines, and how long each took on a reference machine."""
    if error or app.builder.name != "html":
        return
    seconds = {e["id"]: e.get("seconds") for file in records_of(app.env).files.values() for e in file["experiments"]}
    runs = {experiment: seconds.get(experiment) for page in kept(app.env, "runs").values() for experiment in page}
    (pathlib.Path(app.outdir) / "runs.json").write_text(json.dumps(runs, indent=1, sort_keys=True) + "\n")


def setup(app):
    for name, role in {"num": RecordRole(False), "calc": RecordRole(True), "eval": EvaluationRole(), "cited": CitedRole(), "given": GivenRole()}.items():
        app.add_role(name, role)
    for name, directive in {"record-figure": RecordFigure, "ledger-figure": LedgerFigure, "flame-figure": FlameFigure, "law": block("Law."), "proof": block("Proof."), "trap": block("Trap:"),
                            "margin": block(""), "question": block(""), "summary": block("Summary"), "hint": Fold, "solution": Fold,
                            "predict": Predict, "exercise": Exercise, "run": Run, "listing": Listing, "widget": Widget}.items():
        app.add_directive(name, directive)
    app.add_node(from_html, html=(visit_html, None), epub=(visit_epub, None), text=(skip, None), latex=(skip, None))
    app.add_node(measured, html=(visit_measured, depart_measured), epub=(visit_measured, depart_measured),
                 text=(lambda self, node: None, lambda self, node: None))
    for event, handler in {"env-get-outdated": with_changed_records, "env-purge-doc": forget, "build-finished": write_runs}.items():
        app.connect(event, handler)
    for handler in (check_typed_numbers, note_records, keep_together):
        app.connect("doctree-read", handler)
    mathematics.setup(app)
    return {"parallel_read_safe": False, "version": "1", "env_version": 1}
