"""Figures drawn from records, as SVG with a table beside them. Colours are the theme's CSS variables."""
import html
import math

from records import TITLES, digits, value_of, value_text, with_unit

WIDTH, RIGHT = 640, 84
SERIES = 6  # colours of the theme: --series-0 ...


class Log:
    def __init__(self, low, high, begin, end):
        self.low, self.high = math.log10(low), math.log10(high)
        if self.high - self.low < 0.05:
            self.low, self.high = self.low - 0.05, self.high + 0.05
        self.begin, self.end = begin, end

    def __call__(self, value):
        return self.begin + (math.log10(value) - self.low) / (self.high - self.low) * (self.end - self.begin)

    def ticks(self):
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        steps = (1,) if self.high - self.low > 2.5 else (1, 2, 5) if self.high - self.low > 0.7 else (1, 1.5, 2, 3, 4, 5, 7)
        return [s * 10.0**d for d in decades for s in steps if self.low - 1e-9 <= math.log10(s * 10.0**d) <= self.high + 1e-9]


class Linear:
    def __init__(self, high, begin, end):
        self.high, self.begin, self.end = high, begin, end

    def __call__(self, value):
        return self.begin + value / self.high * (self.end - self.begin)

    def ticks(self):
        step = 10 ** math.floor(math.log10(self.high))
        step = next(s for s in (step / 5, step / 2, step, 2 * step) if self.high / s <= 6)
        return [i * step for i in range(int(self.high / step + 1e-9) + 1)]


def escape(text):
    return html.escape(str(text), quote=True)


def interval(variant, field):
    """Low and high of the same field, where the record has them."""
    time = variant["time_ns"]
    if field == "time":
        return time["lo"] * 1e-9, time["hi"] * 1e-9
    if field == "ratio" and variant.get("ratio"):
        return variant["ratio"]["lo"], variant["ratio"]["hi"]
    value = value_of(variant, field)
    return value * time["median"] / time["hi"], value * time["median"] / time["lo"]


def known(variant, field):
    if variant["status"] != "ok":
        return False
    try:
        return value_of(variant, field) > 0
    except ValueError:
        return field == "ratio" and variant["kind"] == "baseline"


def value(variant, field):
    return 1.0 if field == "ratio" and not variant.get("ratio") else value_of(variant, field)


def ladder(rows, field):
    """A row for each variant: a bar from 0 for shares, a dot with its interval on a log axis for the rest."""
    height = 26 * len(rows) + 44
    bars = field == "share"
    left = 20 + max(70, 10.2 * max(len(name) for name, _ in rows))
    spans = [(value(v, field), value(v, field)) if field == "ratio" and not v.get("ratio") else interval(v, field) for _, v in rows]
    if bars:
        axis = Linear(max(1.0, max(high for _, high in spans)), left, WIDTH - RIGHT)
    else:
        axis = Log(min(low for low, _ in spans) / 1.15, max(high for _, high in spans) * 1.15, left, WIDTH - RIGHT)
    out = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" class="plot">']
    for tick in axis.ticks():
        x = axis(tick)
        label = f"{round(100 * tick)} %" if bars else with_unit(tick, field)
        out.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{height - 30}"/>'
                   f'<text class="tick" x="{x:.1f}" y="{height - 12}" text-anchor="middle">{escape(label)}</text>')
    for i, ((name, variant), (low, high)) in enumerate(zip(rows, spans)):
        y, middle = 8 + 26 * i + 13, value(variant, field)
        kind = "yardstick" if variant["kind"] in ("library", "engine") else variant["kind"]
        out.append(f'<g class="{kind}" data-variant="{escape(name)}" data-value="{middle:.6g}">'
                   f'<text class="name" x="{left - 10:.0f}" y="{y + 4}" text-anchor="end">{escape(name)}</text>')
        if bars:
            out.append(f'<rect class="bar" x="{axis(0):.1f}" y="{y - 8}" width="{max(1, axis(middle) - axis(0)):.1f}" height="16"/>')
        else:
            out.append(f'<line class="span" x1="{axis(low):.1f}" x2="{axis(high):.1f}" y1="{y}" y2="{y}"/>'
                       f'<circle class="dot" cx="{axis(middle):.1f}" cy="{y}" r="5"/>')
        out.append(f'<text class="value" x="{max(axis(high), axis(middle)) + 10:.1f}" y="{y + 4}">'
                   f'{escape(with_unit(middle, field))}</text></g>')
    return "".join(out) + "</svg>"


def curve(series, field, x_name):
    """A line for each variant over one axis; both axes logarithmic. series: name -> [(x, value)]."""
    height, bottom, top = 330, 44, 12
    right = WIDTH - 24 - 10 * max(len(name) for name in series)  # the width of a letter on a phone
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    across = Log(min(xs), max(xs), 84, right)
    up = Log(min(ys) / 1.2, max(ys) * 1.2, height - bottom, top)
    out = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" class="plot">']
    for tick in up.ticks():
        out.append(f'<line class="grid" x1="84" x2="{right}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"/>'
                   f'<text class="tick" x="76" y="{up(tick) + 4:.1f}" text-anchor="end">{escape(with_unit(tick, field))}</text>')
    for x in sorted(set(xs)):
        out.append(f'<text class="tick" x="{across(x):.1f}" y="{height - bottom + 18}" text-anchor="middle">{escape(short(x))}</text>')
    out.append(f'<text class="tick" x="{(84 + right) / 2}" y="{height - 6}" text-anchor="middle">{escape(x_name)}</text>')
    ends = sorted(((up(points[-1][1]), name) for name, points in series.items()))
    labels, last = {}, -99.0
    for y, name in ends:  # no two labels closer than a line
        last = labels[name] = max(y, last + 15)
    for i, (name, points) in enumerate(series.items()):
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
        out.append(f'<g class="series-{i % SERIES}" data-variant="{escape(name)}"><polyline class="line" points="{path}"/>')
        out += [f'<circle class="dot" cx="{across(x):.1f}" cy="{up(y):.1f}" r="3.5"/>' for x, y in points]
        out.append(f'<text class="name" x="{right + 10}" y="{labels[name] + 4:.1f}">{escape(name)}</text></g>')
    return "".join(out) + "</svg>"


def short(x):
    for size, unit in ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")):
        if isinstance(x, int) and x >= size and x % size == 0:
            return f"{x // size}\u202f{unit}"
    return digits(x)


def table(rows):
    cells = "".join(f"<tr><th scope=row>{escape(name)}</th>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
                    for name, *row in rows)
    return ("<details class=table><summary>the numbers</summary><div class=scroll><table><thead><tr><th>variant</th><th>at</th><th>time</th>"
            f"<th>ratio [95 %]</th><th>of the limit</th></tr></thead><tbody>{cells}</tbody></table></div></details>")


def table_row(name, point, variant):
    ratio, share = variant.get("ratio"), variant.get("share_of_limit")
    return (name, ", ".join(f"{k} = {value_text(v)}" for k, v in point["at"].items()), with_unit(value_of(variant, "time"), "time"),
            f"{digits(ratio['median'])} [{digits(ratio['lo'])}, {digits(ratio['hi'])}]" if ratio else "baseline",
            with_unit(share, "share") if share is not None else "")


def panel(records, machine, experiments, at, kind, field, x_name, wanted, readers=False):
    """One machine's plot and table. The reader's own is called so."""
    rows, series, lines = [], {}, []
    for experiment in experiments:
        for point in records.points(machine, experiment, at):
            for variant in point["variants"]:
                if (wanted and variant["id"] not in wanted) or not known(variant, field):
                    continue
                name = variant["id"] if len(experiments) == 1 else f"{experiment.split('/')[-1]} {variant['id']}"
                lines.append(table_row(name, point, variant))
                rows.append((name, variant))
                if kind == "curve":
                    series.setdefault(name, []).append((point["at"][x_name], value(variant, field)))
    if not rows:
        raise ValueError(f"no variant of {', '.join(experiments)} on {machine} has {field} at {at}")
    if kind == "curve":
        drawn = curve({name: sorted(points) for name, points in series.items()}, field, x_name)
    else:
        drawn = ladder(rows, field)
    notes = []
    for experiment in experiments:
        note = escape(f"{experiment}, {records.date(machine, experiment)}")
        if records.quick(machine, experiment):
            note += ", a quick run: one point, few rounds"
        if records.stale(machine, experiment):
            note += ", <span class=stale>stale: its sources have changed since</span>"
        notes.append(note)
    fixed = ", ".join(f"{k} = {v}" for k, v in at.items())
    title = (readers_title(machine) if readers else TITLES.get(machine, machine)) + (f"; {fixed}" if fixed else "")
    return (f'{opening(machine, readers)}<p class=where>{escape(title)}</p>{drawn}{table(lines)}'
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
