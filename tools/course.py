"""docs/course.md, as tools/course_page writes it."""
import dataclasses
import fnmatch
import json
import subprocess
import sys
import tomllib

import records

NOT_BUILT = "*not built*"


@dataclasses.dataclass
class Sources:
    course: dict
    labels: list
    chapters: list
    experiments: dict  # by id: backend, variants, ..
    records: dict      # by id, of the first machine that has one: (machine, record)


def read(program):
    def toml(name):
        return tomllib.loads((records.ROOT / "experiments" / name).read_text())
    listed = json.loads(subprocess.run([program, "list", "--json"], capture_output=True, text=True, check=True).stdout)
    experiments = {experiment["id"]: experiment for experiment in listed["experiments"]}
    found = {}
    for machine in records.machines():
        for record in records.records(machine, experiments):
            found.setdefault(record.id, (machine, record))
    return Sources(toml("course.toml"), toml("labels.toml")["label"], toml("chapters.toml")["chapter"], experiments, found)


def wrong(what):
    sys.exit(f"experiments/course.toml: {what}")


def planned(sources, target):
    return any(label["name"] == target and "planned" in label for label in sources.labels)


def id_of(target):
    return target.replace(":", "/")


def targets_of(sources, label):
    for entry in sources.labels:
        if entry["name"] == label:
            return entry.get("target", "").split()
    wrong(f"labels.toml has no '{label}'")


def experiment_of(sources, target):
    if id_of(target) not in sources.experiments:
        wrong(f"there is no experiment '{target}', and no label plans it")
    return sources.experiments[id_of(target)]


def variant_of(experiment, name):
    for variant in experiment["variants"]:
        if variant["id"] == name:
            return variant
    wrong(f"{experiment['id']} has no variant '{name}'")


def at_text(point):
    return ", ".join(f"{name}={value}" for name, value in point["at"].items())


def interval_text(ratio):
    return f"{records.count(ratio['median'])}× [{records.count(ratio['lo'])}, {records.count(ratio['hi'])}]"


def value_at(point, card):
    """The card's number at a point of its record, or None: the speed-up, or a metric of the variant beside the baseline's."""
    variants = {variant["id"]: variant for variant in point["variants"]}
    baseline, variant = variants.get(point["baseline"]), variants.get(card["variant"])
    if not baseline or not variant or variant["status"] != "ok":
        return None
    if "collect" not in card:
        return interval_text(variant["ratio"]) if variant.get("ratio") else None
    values = [side.get("metrics", {}).get(card["collect"]) for side in (baseline, variant)]
    if not values[1]:
        return None
    shown = [records.count(value["value"]) for value in values if value]
    return shown[-1] if baseline is variant else " → ".join(shown)


def recorded(sources, card):
    """(baseline, number and where) of the first point of the record that has the card's number."""
    experiment = experiment_of(sources, card["target"])
    found = sources.records.get(experiment["id"])
    for point in found[1].experiment["points"] if found else []:
        value = value_at(point, card)
        if value:
            return point["baseline"], f"{value}<br>{found[0]}{', ' if point['at'] else ''}{at_text(point)}"
    return experiment["variants"][0]["id"], "not in its record" if found else "no record"


def table(columns, rows):
    return "\n".join([f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)] + [f"| {' | '.join(row)} |" for row in rows]) + "\n"


def commands(lines):
    return "\n".join(f"    {line}" for line in lines) + "\n"


def bullets(lines):
    return "\n".join(f"- {line}" for line in lines) + "\n"


def on(experiment):
    return {"cpu": "CPU", "cuda": "GPU"}[experiment["backend"]]


def card_row(sources, place, card):
    target = f"{place}. `{card['target']}`"
    if planned(sources, card["target"]):
        return [f"{target}<br>{NOT_BUILT}", card["look"], ""]
    experiment = experiment_of(sources, card["target"])
    variant_of(experiment, card["variant"])
    baseline, record = recorded(sources, card)
    pair = f"`{card['variant']}`" if card["variant"] == baseline else f"`{baseline}` → `{card['variant']}`"
    collect = f"`{card['collect']}`" if "collect" in card else "speed-up"
    return [f"{target}<br>{pair}, {on(experiment)}", card["look"], f"{collect}: {record}"]


def cards(sources, group):
    return table(["target and pair", "look at", "write down: what a record says"],
                 [card_row(sources, place + 1, card) for place, card in enumerate(group["card"])])


def act_text(sources, act):
    listed = targets_of(sources, act["name"])
    here = [card["target"] for card in act["card"]]
    if listed != here:
        wrong(f"{act['name']}: the cards are {here}, but labels.toml has {listed}")
    return f"## {act['title']}\n\n{act['goal']}\n\n{commands(act['commands'])}\n{cards(sources, act)}"


def session_text(sources):
    session = sources.course["session"]
    rows = [[f"{session['kickoff']} min", "kickoff", "`ch15:expert_parallelism`"]]
    rows += [[f"{session['act']} min", act["title"], f"`{act['name']}`"] for act in sources.course["act"]]
    rows.append([f"{session['show']} min", "show and tell", ""])
    total = session["kickoff"] + session["act"] * len(sources.course["act"]) + session["show"]
    return f"{total} minutes, if it is held in a room:\n\n" + table(["time", "what", "target"], rows)


def chapters_text(sources):
    rows = []
    for chapter in sources.chapters:
        start = chapter["start"]
        if planned(sources, start):
            first, runs_on = f"`fathom run {start}`: {NOT_BUILT}", ""
        else:
            first = f"`fathom run {start} --quick`"
            runs_on = on(experiment_of(sources, start))
        rows.append([str(chapter["number"]), chapter["title"], chapter["moe"], first, runs_on])
    return table(["", "focus", "for a Mixture-of-Experts layer", "start with", "on"], rows)


def labs_of(sources):
    return sorted({id.split("/")[1] for id in sources.experiments if id.startswith("labs/")})


def shown_by(sources, topic, lab):
    """The variants of a lab that show a topic."""
    shown = []
    for id, experiment in sources.experiments.items():
        if not id.startswith(f"labs/{lab}/"):
            continue
        for variant in experiment["variants"]:
            name = f"{id}/{variant['id']}"
            if set(topic.get("techniques", [])) & set(variant["techniques"]) or \
                    any(fnmatch.fnmatchcase(name, pattern) for pattern in topic.get("variants", [])):
                shown.append(name.removeprefix(f"labs/{lab}/"))
    return shown


def cell(shown):
    """At most two variants, in full: more are counted."""
    return ", ".join(f"`{name}`" for name in shown[:2]) + (f" and {len(shown) - 2} more" if len(shown) > 2 else "")


def labs_text(sources):
    rows = []
    for topic in sources.course["topic"]:
        lines = []
        for lab in labs_of(sources):
            shown = shown_by(sources, topic, lab)
            if lab in topic["labs"] and not shown:
                wrong(f"labs/{lab} must show {topic['name']}, and no variant of it does")
            if shown:
                lines.append(f"{'**' if lab in topic['labs'] else ''}{lab}{'**' if lab in topic['labs'] else ''}: {cell(shown)}")
        for lab in topic["labs"]:
            if lab not in labs_of(sources):
                wrong(f"{topic['name']}: there is no labs/{lab}")
        if not lines:
            instead = topic["instead"]
            lines = [f"no lab; `{instead}`" if instead and experiment_of(sources, instead) else NOT_BUILT]
        rows.append([topic["name"], "<br>".join(lines)])
    return table(["technique", "labs and their variants"], rows)


def rate_text(baseline, variant):
    """Bytes a second, or requests where the experiment counts these."""
    for metric, divisor, unit in (("bytes_per_s", 1e9, "GB/s"), ("requests_per_s", 1e3, "thousand requests/s")):
        if metric in baseline["metrics"]:
            return f"{baseline['metrics'][metric]['value'] / divisor:.3g} → {variant['metrics'][metric]['value'] / divisor:.3g} {unit}"
    return ""


def storage_text(sources):
    """The rates of every pair of chapter 5, at every point of its record."""
    rows = []
    for id, (machine, record) in sorted(sources.records.items()):
        if not id.startswith("ch05/"):
            continue
        for point in record.experiment["points"]:
            variants = {variant["id"]: variant for variant in point["variants"]}
            baseline = variants[point["baseline"]]
            for variant in records.timed(point):
                if variant["id"] == point["baseline"] or not variant.get("ratio"):
                    continue
                rows.append([id.removeprefix("ch05/"), at_text(point), f"{baseline['id']} → {variant['id']}",
                             rate_text(baseline, variant),
                             interval_text(variant["ratio"]), f"{machine} {record.date}"])
    return table(["experiment", "at", "pair", "rate", "speed-up [95 %]", "recorded"], rows)


def demo_text(demo):
    return f"### {demo['title']}\n\n{demo['text']}\n\n{commands(demo['commands'])}\n{bullets(demo['look'])}"


def gpu_cards(sources):
    targets = [card["target"] for act in sources.course["act"] for card in act["card"]]
    built = [target for target in targets if not planned(sources, target)]
    gpu = sum(experiment_of(sources, target)["backend"] == "cuda" for target in built)
    waiting = len(targets) - len(built)
    to_come = f"; {waiting} {'is' if waiting == 1 else 'are'} not built yet" if waiting else ""
    return f"{gpu} of {len(targets)} cards need a GPU and are skipped without one, with a type and a reason{to_come}."


def page(sources):
    course = sources.course
    return f"""# The course: four acts through the lab

Written by `tools/course_page` from `experiments/course.toml`, the declared experiments and the records under `results/`; a test fails when it is out of
date. Do not edit it.

An act is a target: `fathom run act1 --quick` runs its experiments in the order of the cards below and leaves one report, in which every pair has its speed-up, interval
and verdict; `--csv=act1.csv` logs the same as a table. {gpu_cards(sources)} On two cores a quick run takes one to three
minutes an act; without `--quick` it takes all sizes, and several times as long. [lab.md](lab.md) explains the commands, [method.md](method.md) when a number can be believed.

A card names a pair and the number to write down. The last column is what a record says: [results.md](results.md) has all of them, their dates, and which are
stale. Your own number goes beside it. Where it differs, say why.

{session_text(sources)}
## Kickoff

{course['kickoff']['goal']}

{commands(course['kickoff']['commands'])}
{bullets(course['kickoff']['look'])}
{cards(sources, course['kickoff'])}
{chr(10).join(act_text(sources, act) for act in course['act'])}
## Show and tell

{course['show']['goal']}

{commands(course['show']['commands'])}
**Stretch goal.** {course['stretch']['text']}

{commands(course['stretch']['commands'])}
## Demonstrations

{chr(10).join(demo_text(demo) for demo in course['demo'])}
## The chapters

A command to start each chapter with. Chapters whose start says GPU have no experiment for the CPU, and their run is a typed skip there.

{chapters_text(sources)}
## Labs and techniques

Which labs show which techniques, by what their variants declare. A lab in bold must show it; the page is not written otherwise. A variant stands as
`experiment/variant`, below `labs/<lab>`.

{labs_text(sources)}
## Storage throughput

{storage_text(sources)}
## DualPipe beside a dense model

![Schedules of four stages and eight micro-batches: a dense model, experts with exposed messages, DualPipe](dualpipe.svg)

**Modelled**, not measured (`src/book/pipeline_model.cpp`, which a test proves against the published formulas; `tests/dualpipe_figure.cpp` draws it). A forward pass computes
for 1, a backward pass for 2; an expert layer's dispatch and combine add 1 to each, unless a forward and a backward pass run at once and hide each other's
messages. `ch04:pipeline_parallel` measures 1F1B and ZB-H1 on two processes; DualPipe needs several GPUs.
"""
