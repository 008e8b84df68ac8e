"""Flame graphs of counted stacks, as SVG with a table beside them: who called is above, a box is as wide as its share of all
samples, and a bar below its name reaches from the low to the high end of the share's 95 % interval."""
import math

from figures import LETTER, WIDTH, escape

ROW = 44
Z = 1.96


def share_interval(count, samples):
    """The 95 % interval of a share of independent samples, by Wilson's formula."""
    p, extra = count / samples, Z * Z / samples
    middle, half = p + extra / 2, Z * math.sqrt(p * (1 - p) / samples + extra / (4 * samples))
    return (middle - half) / (1 + extra), (middle + half) / (1 + extra)


def boxes(stacks):
    """(path, samples, samples to the left of it) of each box, callers before those they call."""
    counts = {}
    for stack, count in stacks.items():
        path = tuple(stack.split(";"))
        for depth in range(1, len(path) + 1):
            counts[path[:depth]] = counts.get(path[:depth], 0) + count
    starts = {}
    for path in sorted(counts):
        before = [other for other in starts if other[:-1] == path[:-1]]
        starts[path] = starts.get(path[:-1], 0) + sum(counts[other] for other in before)
    return [(path, counts[path], starts[path]) for path in sorted(counts, key=lambda path: (len(path), starts[path]))]


def percent(share):
    return f"{100 * share:.1f}"


def draw(stacks):
    samples, found = sum(stacks.values()), boxes(stacks)
    height = ROW * max(len(path) for path, *_ in found) + 6
    left, across = 4, WIDTH - 8
    out = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" class="plot flame">']
    for path, count, start in found:
        x, y, wide = left + across * start / samples, 3 + ROW * (len(path) - 1), across * count / samples
        low, high = share_interval(count, samples)
        label = next((text for text in (f"{path[-1]} {percent(count / samples)} %", path[-1]) if LETTER * len(text) + 12 < wide), "")
        about = f"{'; '.join(path)}: {count} of {samples} samples, {percent(count / samples)} % [{percent(low)}, {percent(high)}]"
        out.append(f'<g class="series-{(len(path) - 1) % 3}"><title>{escape(about)}</title>'
                   f'<rect class="bar" x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{ROW - 3}"/>')
        if label:
            out.append(f'<text x="{x + 8:.1f}" y="{y + 22}">{escape(label)}</text>')
        if count < samples:
            ends = [min(WIDTH - 4, x + across * end) for end in (low, high)]
            out.append(f'<line class="span" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{y + ROW - 9}" y2="{y + ROW - 9}"/>')
        out.append("</g>")
    return "".join(out) + "</svg>"


def panel(stacks, title, measured, file):
    samples = sum(stacks.values())
    rows = "".join(f"<tr><th scope=row>{escape('; '.join(path))}</th><td>{count}</td><td>{percent(count / samples)}\u202f%</td>"
                   f"<td>{' to '.join(map(percent, share_interval(count, samples)))}\u202f%</td></tr>" for path, count, _ in boxes(stacks))
    return (f'<div class=panel><p class=where>{escape(title)}</p>{draw(stacks)}'
            f"<details class=table><summary>the numbers</summary><div class=scroll><table><thead><tr><th>called by; function</th><th>samples</th>"
            f"<th>share</th><th>95 % interval</th></tr></thead><tbody>{rows}</tbody></table></div></details>"
            f'<p class=source>record: {escape(file)}, {escape(measured["machine"])}, {escape(measured["date"])}</p></div>')
