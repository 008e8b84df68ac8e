"""Figures drawn from records, as SVG with a table beside them. Colours are the theme's CSS variables.

Every mark says what it stands for: data-record (a reference as {num} takes it), data-y (the field) and data-value, which
tests/book_test.py compares with the records. A dagger marks what is stale, a hollow mark what was not measured.
"""
import html
import math
import statistics
from typing import NamedTuple

from axes import Linear, Log, short, tick_text
from ledger import score
from records import RATES, TITLES, digits, limit_of, unknown, value_of, value_text, with_unit

WIDTH, RIGHT = 640, 84
LETTER, LINE = 10, 20  # of a name on a phone, in units of the picture
TICK_LETTER = 8  # of a tick there
SERIES = 6  # colours of the theme: --series-0 ...


class Mark(NamedTuple):
    """A variant at a point."""
    name: str
    record: str  # machine:experiment
    point: dict
    variant: dict
    stale: bool
    evidence: str

    @property
    def data(self):
        at = "&".join(f"{k}={value_text(v)}" for k, v in self.point["at"].items())
        return f'data-record="{escape(self.record)}/{escape(self.variant["id"])}{"?" + escape(at) if at else ""}"'

    @property
    def classes(self):
        kind = self.variant["kind"]
        return " ".join(["yardstick" if kind in ("library", "engine") else kind, *["stale"] * self.stale,
                         *["hollow"] * (self.evidence != "measured")])

    @property
    def label(self):
        return self.name + " †" * self.stale

    @property
    def intensity(self):
        return self.variant["flops"] / ((self.variant.get("bytes_read") or 0) + (self.variant.get("bytes_written") or 0))


def escape(text):
    return html.escape(str(text), quote=True)


def interval(variant, field):
    """Low and high of a field, where the record has them; else the value twice."""
    time = variant["time_ns"]
    if field == "time":
        return time["lo"] * 1e-9, time["hi"] * 1e-9
    if field == "ratio" and variant.get("ratio"):
        return variant["ratio"]["lo"], variant["ratio"]["hi"]
    middle = value(variant, field)
    return (middle * time["median"] / time["hi"], middle * time["median"] / time["lo"]) if field in RATES else (middle, middle)


def known(variant, field):
    if variant["status"] != "ok":
        return False
    try:
        return value_of(variant, field) > 0
    except ValueError:
        return field == "ratio" and variant["kind"] == "baseline"


def value(variant, field):
    return 1.0 if field == "ratio" and not variant.get("ratio") else value_of(variant, field)


def ladder(marks, field):
    """A row for each variant: a bar from 0 for shares, a dot with its interval on a log axis for the rest."""
    height = 26 * len(marks) + 44
    bars = field == "share"
    left = 24 + max(70, 10.8 * max(len(mark.label) for mark in marks))
    spans = [interval(mark.variant, field) for mark in marks]
    if bars:
        axis = Linear(max(1.0, max(high for _, high in spans)), left, WIDTH - RIGHT)
    else:
        axis = Log(min(low for low, _ in spans) / 1.15, max(high for _, high in spans) * 1.15, left, WIDTH - RIGHT)
    out = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" class="plot">']
    for tick in axis.ticks():
        x = axis(tick)
        out.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{height - 30}"/>'
                   f'<text class="tick" x="{x:.1f}" y="{height - 12}" text-anchor="middle">{escape(tick_text(tick, field))}</text>')
    for i, (mark, (low, high)) in enumerate(zip(marks, spans)):
        y, middle = 8 + 26 * i + 13, value(mark.variant, field)
        out.append(f'<g class="{mark.classes}" {mark.data} data-y="{field}" data-value="{middle:.6g}">'
                   f'<text class="name" x="{left - 10:.0f}" y="{y + 4}" text-anchor="end">{escape(mark.label)}</text>')
        if bars:
            out.append(f'<rect class="bar" x="{axis(0):.1f}" y="{y - 8}" width="{max(1, axis(middle) - axis(0)):.1f}" height="16"/>')
        else:
            out.append(f'<line class="span" x1="{axis(low):.1f}" x2="{axis(high):.1f}" y1="{y}" y2="{y}"/>'
                       f'<circle class="dot" cx="{axis(middle):.1f}" cy="{y}" r="5"/>')
        out.append(f'<text class="value" x="{max(axis(high), axis(middle)) + 10:.1f}" y="{y + 4}">'
                   f'{escape(with_unit(middle, field))}</text></g>')
    return "".join(out) + "</svg>"


def curve(series, field, x_name):
    """A line for each variant over one axis; both axes logarithmic. series: label -> [(x, mark)]."""
    height, bottom, top, left = 330, 44, 12, 108
    right = WIDTH - 24 - LETTER * max(map(len, series))
    xs = [x for points in series.values() for x, _ in points]
    ys = [value(mark.variant, field) for points in series.values() for _, mark in points]
    across = Log(min(xs), max(xs), left, right)
    up = Log(min(ys) / 1.2, max(ys) * 1.2, height - bottom, top)
    out = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" class="plot">']
    for tick in up.ticks():
        out.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"/>'
                   f'<text class="tick" x="{left - 8}" y="{up(tick) + 4:.1f}" text-anchor="end">{escape(tick_text(tick, field))}</text>')
    free = -math.inf  # where the next tick's words may begin
    for x in sorted(set(xs)):
        half = TICK_LETTER * len(short(x)) / 2
        if across(x) - half >= free:
            free = across(x) + half + TICK_LETTER
            out.append(f'<text class="tick" x="{across(x):.1f}" y="{height - bottom + 18}" text-anchor="middle">{escape(short(x))}</text>')
    out.append(f'<text class="tick" x="{(left + right) / 2}" y="{height - 6}" text-anchor="middle">{escape(x_name)}</text>')
    ends = sorted(((up(value(points[-1][1].variant, field)), name) for name, points in series.items()))
    labels, last = {}, -99.0
    for y, name in ends:  # no two labels closer than a line
        last = labels[name] = max(y, last + LINE - 2)
    for i, (name, points) in enumerate(series.items()):
        at = [(across(x), up(value(mark.variant, field)), mark) for x, mark in points]
        out.append(f'<g class="series-{i % SERIES}"><polyline class="line" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y, _ in at)}"/>')
        out += [f'<g class="{mark.classes}" {mark.data} data-y="{field}" data-value="{value(mark.variant, field):.6g}">'
                f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/></g>' for x, y, mark in at]
        out.append(f'<text class="name" x="{right + 10}" y="{labels[name] + 4:.1f}">{escape(name)}</text></g>')
    return "".join(out) + "</svg>"


def is_peak(name):
    return "peak" in name


def roofline(series, roofs):
    """Rates over intensity, beneath the ceilings that were measured; both axes logarithmic.

    series: (experiment, label) -> marks in the order of their intensity. roofs: name of a limit -> rate; those of bytes
    slope, those of operations are flat. A label stands at its series' last mark.
    """
    height, bottom, top, left, right = 400, 50, 24, 108, WIDTH - 16
    peaks = [rate for name, rate in roofs.items() if is_peak(name)]
    slopes = [rate for name, rate in roofs.items() if not is_peak(name)]
    marks = [mark for points in series.values() for mark in points]
    xs = [mark.intensity for mark in marks] + [max(peaks) / min(slopes), min(peaks) / max(slopes)]
    ys = [value(mark.variant, "flops_per_s") for mark in marks]
    across = Log(min(xs) / 2, max(xs), left, right - LETTER * max(len(label) for _, label in series) - 20)  # room for names
    up = Log(min(ys) / 2, max(*peaks, *ys) * 1.5, height - bottom, top)
    low_x, high_x, low_y = 10**across.low, across.at(right), 10**up.low
    out = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" class="plot roofline">']
    for tick in up.ticks():
        out.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"/>'
                   f'<text class="tick" x="{left - 8}" y="{up(tick) + 4:.1f}" text-anchor="end">{escape(tick_text(tick, "flops_per_s"))}</text>')
    for tick in across.ticks():
        out.append(f'<line class="grid" x1="{across(tick):.1f}" x2="{across(tick):.1f}" y1="{top}" y2="{height - bottom}"/>'
                   f'<text class="tick" x="{across(tick):.1f}" y="{height - bottom + 18}" text-anchor="middle">{escape(tick_text(tick, ""))}</text>')
    out.append(f'<text class="tick" x="{(left + right) / 2}" y="{height - 8}" text-anchor="middle">operations for each byte</text>')
    taken, texts = [], []
    for name, rate in roofs.items():
        if is_peak(name):
            ends = [(min(max(rate / max(slopes), low_x), high_x), rate), (high_x, rate)]
            above = up.at(up(rate) - LINE) if rate < max(peaks) else rate  # the slope may go on, and the rate stands beside it
            begin = across(above / max(slopes)) + 6
            where = (begin, up(rate) - 7, "start") if begin + 14 * LETTER < right else (right, up(rate) - 7, "end")
        else:
            ends = [(max(low_x, low_y / rate), max(low_x, low_y / rate) * rate), (max(peaks) / rate, max(peaks))]
            part = (slopes.index(rate) + 1) / (len(slopes) + 1)
            middle = ends[0][0] ** (1 - part) * ends[1][0] ** part
            where = (across(middle) - 8, up(middle * rate) - 6, "end")
        (x1, y1), (x2, y2) = ((across(x), up(y)) for x, y in ends)
        out.append(f'<line class="roof" data-roof="{escape(name)}" data-rate="{rate:.6g}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')
        taken += along(x1, y1, x2, y2)
        unit = "flops_per_s" if is_peak(name) else "bytes_per_s"
        texts.append((*where, with_unit(rate, unit), "tick"))
    lines, labels = [], []
    experiments = list(dict.fromkeys(experiment for experiment, _ in series))
    for (experiment, label), points in series.items():
        at = [(across(mark.intensity), up(value(mark.variant, "flops_per_s")), mark) for mark in points]
        colour = f"series-{experiments.index(experiment) % SERIES}"
        drawn = "".join(f'<g class="{mark.classes}" {mark.data} data-y="flops_per_s" data-value="{value(mark.variant, "flops_per_s"):.6g}" '
                        f'data-intensity="{mark.intensity:.6g}">{shape(mark, x, y)}</g>' for x, y, mark in at)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in at)
        lines.append(f'<g class="{colour}">' + (f'<polyline class="line" points="{path}"/>' if len(at) > 1 else "") + drawn + "</g>")
        taken += [(x - 6, y - 6, x + 6, y + 6) for x, y, _ in at]
        for (x1, y1, _), (x2, y2, _) in zip(at, at[1:]):
            taken += along(x1, y1, x2, y2)
        labels.append((at[-1][0], at[-1][1], label, colour))
    out += lines
    taken += [box(*text[:4]) for text in texts]
    for x, y, label, colour in sorted(labels, key=lambda one: one[1]):
        beside = place(x, y, label, taken, (left, top, right, height - bottom))
        taken.append(box(*beside, label))
        if abs(beside[1] - 4 - y) > LINE / 2:
            near = beside[0] - 3 if beside[2] == "start" else beside[0] + 3
            out.append(f'<line class="lead" x1="{x:.1f}" y1="{y:.1f}" x2="{near:.1f}" y2="{beside[1] - 4:.1f}"/>')
        texts.append((*beside, label, f"name {colour}"))
    out += [f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>' for x, y, anchor, text, style in texts]
    return "".join(out) + "</svg>"


def ledger(marks):
    """What was measured over what was predicted, both axes logarithmic; on the line they are equal, within the band a tenth apart.

    marks: [(predicted ratio, mark)].
    """
    height, bottom, top, left, right = 400, 50, 16, 70, WIDTH - 16
    ys = [value(mark.variant, "ratio") for _, mark in marks]
    across = Log(min(p for p, _ in marks) / 1.3, max(p for p, _ in marks) * 1.3, left, right)
    up = Log(min(ys) / 1.3, max(ys) * 1.3, height - bottom, top)
    out = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" class="plot">']
    for tick in up.ticks():
        out.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"/>'
                   f'<text class="tick" x="{left - 8}" y="{up(tick) + 4:.1f}" text-anchor="end">{escape(tick_text(tick, "ratio"))}</text>')
    for tick in across.ticks():
        out.append(f'<line class="grid" x1="{across(tick):.1f}" x2="{across(tick):.1f}" y1="{top}" y2="{height - bottom}"/>'
                   f'<text class="tick" x="{across(tick):.1f}" y="{height - bottom + 18}" text-anchor="middle">'
                   f'{escape(tick_text(tick, "ratio"))}</text>')
    out.append(f'<text class="tick" x="{(left + right) / 2}" y="{height - 8}" text-anchor="middle">predicted ratio</text>')
    for off, style in ((1, "roof"), (0.9, "lead"), (1.1, "lead")):
        low, high = max(10**across.low, 10**up.low / off), min(10**across.high, 10**up.high / off)
        out.append(f'<line class="{style}" x1="{across(low):.1f}" y1="{up(low * off):.1f}" x2="{across(high):.1f}" y2="{up(high * off):.1f}"/>')
    out.append('<g class="series-0">')
    for predicted, mark in marks:
        measured = value(mark.variant, "ratio")
        out.append(f'<g class="{mark.classes}" {mark.data} data-y="ratio" data-value="{measured:.6g}">'
                   f'<circle class="dot" cx="{across(predicted):.1f}" cy="{up(measured):.1f}" r="3" fill-opacity="0.5"/></g>')
    return "".join(out) + "</g></svg>"


def ledger_panel(records, machine):
    """Every predicted ratio of a machine that is a value and was scored, and how many came how near."""
    marks = []
    for of, experiment in sorted(records.files):
        if of == machine:
            for point in records.experiment(machine, experiment)["points"]:
                for variant in point["variants"]:
                    words, numbers = score(variant) or ((), {})
                    if {"ratio", "value"} <= set(words):
                        marks.append((numbers["predicted"], Mark(variant["id"], f"{machine}:{experiment}", point, variant,
                                                                 bool(records.stale(machine, experiment)), "measured")))
    bounds = [("below a half", 0, 0.5), ("a half to nine tenths", 0.5, 0.9), ("within a tenth", 0.9, 1.1), ("a tenth more to twice", 1.1, 2),
              ("twice and more", 2, math.inf)]
    offs = [value(mark.variant, "ratio") / predicted for predicted, mark in marks]
    rows = "".join(f"<tr><th scope=row>{words}</th><td>{sum(low <= off < high for off in offs)}</td></tr>" for words, low, high in bounds)
    return (f'{opening(machine, False)}<p class=where>{escape(TITLES.get(machine, machine))}</p>{ledger(marks)}'
            "<details class=table><summary>the numbers</summary><div class=scroll><table><thead><tr><th>measured over predicted</th>"
            f"<th>ratios</th></tr></thead><tbody>{rows}</tbody></table></div></details>"
            f'<p class=source>record: all {len({mark.record for _, mark in marks})} of this machine with such a prediction</p></div>')


def shape(mark, x, y):
    """A circle; a square for a library."""
    if mark.variant["kind"] == "library":
        return f'<rect class="dot" x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9"/>'
    return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'


def along(x1, y1, x2, y2):
    """A line as small boxes."""
    steps = max(1, int(math.hypot(x2 - x1, y2 - y1) / 8))
    points = [(x1 + (x2 - x1) * i / steps, y1 + (y2 - y1) * i / steps) for i in range(steps + 1)]
    return [(x - 2, y - 2, x + 2, y + 2) for x, y in points]


def box(x, y, anchor, text):
    """The room of a text on a phone, where letters are largest."""
    wide = LETTER * len(text)
    return (x, y - LINE + 5, x + wide, y + 5) if anchor == "start" else (x - wide, y - LINE + 5, x, y + 5)


def place(x, y, text, taken, frame):
    """Where a point's label covers nothing: beside it, or as little above or below as can be."""
    left, top, right, bottom = frame
    found = []
    for step in range(-12, 13):
        for anchor in ("start", "end"):
            shift = step * LINE / 2
            at = (x + (12 if anchor == "start" else -12), y + 4 + shift, anchor)
            x1, y1, x2, y2 = box(*at, text)
            outside = x1 < left or x2 > right or y1 < top - LINE or y2 > bottom
            covers = sum(x1 < b[2] and b[0] < x2 and y1 < b[3] and b[1] < y2 for b in taken)
            found.append((outside, covers, abs(shift), anchor == "end", at))
    return min(found)[-1]


HEADS = {"time": "time", "ratio": "ratio", "share": "of the limit", "bytes_per_s": "bytes a second", "flops_per_s": "operations a second",
         "max_error": "largest error", "intensity": "operations for each byte", "of_the_roof": "of the roof"}


def cell(mark, field, roofs):
    """A quantity of a mark, with its interval where the record has one."""
    variant = mark.variant
    if field == "ratio" and not variant.get("ratio"):
        return "baseline"
    if field == "intensity":
        return digits(mark.intensity)
    if field == "of_the_roof":
        return with_unit(value(variant, "flops_per_s") / roof_over(mark, roofs), "share")
    if not known(variant, field):
        return ""
    text, (low, high) = with_unit(value(variant, field), field), interval(variant, field)
    if low == high:
        return text
    ends, unit = [with_unit(end, field) for end in (low, high)], text.rpartition("\u202f")[2]
    if all(end.endswith(unit) for end in ends) and not unit[-1].isdigit():
        ends = [end.removesuffix("\u202f" + unit) for end in ends]
    return f"{text} [{ends[0]}, {ends[1]}]"


def roof_over(mark, roofs):
    """The bound for a mark: under its own limit, where that is drawn, and the highest of the other kind."""
    own = limit_of(mark.point, mark.variant)[0] if mark.variant.get("limit_rate") else None
    peak, slope = (roofs[own] if own in roofs and is_peak(own) == flat else max(r for name, r in roofs.items() if is_peak(name) == flat)
                   for flat in (True, False))
    return min(peak, mark.intensity * slope)


def table(marks, kind, field, roofs):
    """The numbers of a figure: what it draws first, then what else the records say."""
    if kind == "roofline":
        fields = ["intensity", "flops_per_s", "of_the_roof", "time"]
    else:
        fields = [field] + [other for other in ("time", "ratio", "share") if other != field and any(known(m.variant, other) for m in marks)]
    varied = [name for name in marks[0].point["at"] if len({value_text(mark.point["at"].get(name, "")) for mark in marks}) > 1]
    head = "".join(f"<th>{escape(name)}</th>" for name in ["variant", *varied, *(HEADS.get(f, f.replace("_", " ")) for f in fields)])
    rows = "".join(f"<tr><th scope=row>{escape(mark.label)}</th>"
                   + "".join(f"<td>{escape(value_text(mark.point['at'].get(name, '')))}</td>" for name in varied)
                   + "".join(f"<td>{escape(cell(mark, name, roofs))}</td>" for name in fields) + "</tr>" for mark in marks)
    return ("<details class=table><summary>the numbers</summary><div class=scroll><table><thead><tr>" + head + "</tr></thead><tbody>"
            + rows + "</tbody></table></div><p class=source>In brackets: the 95 % interval.</p></details>")


def roofs_of(records, machine, marks, named):
    """The ceilings to draw, name -> (rate, how many controls): those that a figure names, or the limits of its marks."""
    all_of, own = records.ceilings(machine), {}
    for name in named:
        if name not in all_of:
            raise unknown(f"limit on {machine}", name, sorted(all_of))
    for _, (name, rate) in {(id(mark.point), limit_of(mark.point, mark.variant)) for mark in marks if mark.variant.get("limit_rate")}:
        own.setdefault(name, []).append(rate)
    rates = {name: own.get(name) or all_of[name] for name in named or sorted(own)}
    for what, found in (("peak", any(map(is_peak, rates))), ("bandwidth", not all(map(is_peak, rates)))):
        if not found:
            raise ValueError(f"these records were measured against no {what}; name one with :roofs:, such as "
                             + ", ".join(name for name in sorted(all_of) if is_peak(name) == (what == "peak")))
    return {name: (statistics.median(of), len(of)) for name, of in rates.items()}


def chosen(mark, wanted):
    """Whether a figure names this variant, alone or behind its experiment's name: `tiled`, `fp32/warp_tile`."""
    experiment = mark.record.rpartition("/")[2]
    return not wanted or mark.variant["id"] in wanted or f"{experiment}/{mark.variant['id']}" in wanted


def drawn_marks(records, machine, experiments, at, kind, field, wanted):
    """What a figure shows of these records. at: the parameters of all experiments under "", and of each under its id."""
    marks = []
    for experiment in experiments:
        found = records.experiment(machine, experiment)
        for point in records.points(machine, experiment, {**at[""], **at.get(experiment, {})}):
            for variant in point["variants"]:
                name = variant["id"] if len(experiments) == 1 or kind == "roofline" else f"{experiment.split('/')[-1]} {variant['id']}"
                mark = Mark(name, f"{machine}:{experiment}", point, variant, bool(records.stale(machine, experiment)),
                            found.get("evidence", "measured"))
                moved = (variant.get("bytes_read") or 0) + (variant.get("bytes_written") or 0)
                if chosen(mark, wanted) and known(variant, field) and (kind != "roofline" or moved):
                    marks.append(mark)
    missing = [name for name in wanted if not any(chosen(mark, [name]) for mark in marks)]
    if not marks or (missing and machine in TITLES):  # a reader's machine may lack a library
        raise ValueError(f"no variant {' '.join(missing)} of {', '.join(experiments)} on {machine} has {field} at {at['']}")
    return marks


def panel(records, machine, experiments, at, kind, field, x_name, wanted, named_roofs=(), readers=False):
    """One machine's plot and table. The reader's own is called so."""
    marks, series, roofs, notes = drawn_marks(records, machine, experiments, at, kind, field, wanted), {}, {}, []
    if kind == "curve":
        marks.sort(key=lambda mark: mark.point["at"][x_name])
        for mark in marks:
            series.setdefault(mark.label, []).append((mark.point["at"][x_name], mark))
        drawn = curve(series, field, x_name)
    elif kind == "roofline":
        counted = roofs_of(records, machine, marks, named_roofs)
        roofs = {name: rate for name, (rate, _) in counted.items()}
        marks.sort(key=lambda mark: mark.intensity)
        for mark in marks:
            series.setdefault((mark.record, mark.label), []).append(mark)
        drawn = roofline(series, roofs)
        drawn += legend(marks)
        drawn += "<p class=legend>roofs: " + "; ".join(
            f"{escape(name)}, {with_unit(rate, 'flops_per_s' if is_peak(name) else 'bytes_per_s')}"
            + (f" (median of {count} controls)" if count > 1 else "") for name, (rate, count) in counted.items()) + "</p>"
    else:
        drawn = ladder(marks, field)
    for experiment in experiments:
        note = escape(f"{experiment}, {records.date(machine, experiment)}")
        if records.quick(machine, experiment):
            note += ", a quick run: one point, few rounds"
        if records.stale(machine, experiment):
            note += ", <span class=stale>stale: its sources have changed since</span>"
        evidence = records.experiment(machine, experiment).get("evidence", "measured")
        if evidence != "measured":
            note += f", hollow: {escape(evidence)}"
        notes.append(note)
    fixed = ", ".join(f"{k} = {v}" for k, v in at[""].items())
    title = (readers_title(machine) if readers else TITLES.get(machine, machine)) + (f"; {fixed}" if fixed else "")
    return (f'{opening(machine, readers)}<p class=where>{escape(title)}</p>{drawn}{table(marks, kind, field, roofs)}'
            f'<p class=source>record: {"; ".join(notes)}</p></div>')


def readers_title(machine):
    return f"Your machine ({machine})"


def opening(machine, readers):
    if not readers:
        return f'<div class=panel data-machine="{escape(machine)}">'
    return (f'<div class="panel yours" data-machine="yours {escape(machine)}" role=group '
            f'aria-label="{escape(readers_title(machine))}">')


def readers_panel(records, machine, experiments, *about):
    """The reader's own machine, or what its record lacks for this figure."""
    has = [experiment for experiment in experiments if (machine, experiment) in records.files]
    lacks = [experiment for experiment in experiments if experiment not in has]
    try:
        drawn = panel(records, machine, has, *about, readers=True)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = str(error) if isinstance(error, ValueError) else f"it is no whole record ({error!r})"
        quick = " It was a quick run; a whole one has all points." if any(records.quick(machine, e) for e in has) else ""
        drawn = (f"{opening(machine, True)}<p class=where>{escape(readers_title(machine))}</p>"
                 f"<p class=source>Your record does not give this figure: {escape(why)}.{quick}</p></div>")
    if lacks:
        drawn = drawn.removesuffix("</div>") + f"<p class=source>Not run here yet: {escape(', '.join(lacks))}.</p></div>"
    return drawn


def legend(marks):
    """Which colour is which experiment, and what a square is."""
    experiments = list(dict.fromkeys(mark.record for mark in marks))
    parts = [f'<span class="key series-{i % SERIES}">{escape(experiment.rpartition(":")[2])}</span>' for i, experiment in enumerate(experiments)]
    parts += ["squares: libraries"] * any(mark.variant["kind"] == "library" for mark in marks)
    return f'<p class=legend>{" ".join(parts)}</p>' if len(parts) > 1 else ""
