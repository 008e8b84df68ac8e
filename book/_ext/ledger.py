"""Counts over all records: what was predicted, what came of it, and the verdicts. {calc}`count("cpu predictions failed")`.

A query is a list of words, all of which must apply. The first that names a kind of thing says what is counted:
    predictions   one for each variant and point that had one and could be scored
    declared      one for each variant that had one, however many points it has; `declared failed` failed at one point or more
    verdicts      one for each variant and point with a verdict
    controls      one for each point with an A/A control
Others keep some: a machine; share, ratio; value, least (how the prediction is worded); held, failed; baseline, optimized, library,
engine; a verdict, as FASTER; precision, rounds, time (why a run ended); advisory; several (points of the experiment); and comparisons
such as predicted>=1.1, off<0.9 (measured over predicted), width>=1.02 (of a control, high over low).
"""
import math
import operator
import re
import statistics

KINDS = ("predictions", "declared", "verdicts", "controls")
PREDICTION = re.compile(r"(share|ratio) (>= )?([\d.]+)")
COMPARISON = re.compile(r"(predicted|off|width)(>=|<)([\d.]+)")
COMPARE = {">=": operator.ge, "<": operator.lt}


def rows(records):
    """(kind, name of the thing, words, numbers) of everything that can be counted."""
    for machine, experiment in sorted(records.files):
        points = records.experiment(machine, experiment)["points"]
        for i, point in enumerate(points):
            of_point = {machine, point.get("stopped"), *["several"] * (len(points) > 1)}
            if control := point.get("aa"):
                told = of_point | ({"advisory"} if control.get("advisory") else set())
                yield "controls", (machine, experiment, i), told, {"width": control["hi"] / control["lo"]}
            for variant in point["variants"]:
                name, words = (machine, experiment, variant["id"]), of_point | {variant["kind"], variant.get("verdict")}
                if variant.get("verdict"):
                    yield "verdicts", (*name, i), words, {}
                if scored := score(variant):
                    told, numbers = scored
                    yield "predictions", (*name, i), words | told, numbers
                    yield "declared", name, words | told, numbers


def score(variant):
    """Words and numbers of a prediction that was scored."""
    prediction = variant.get("prediction") or {}
    if prediction.get("held") is None:
        return None
    field, least, predicted = PREDICTION.fullmatch(prediction["text"]).groups()
    measured = variant["share_of_limit"] if field == "share" else variant["ratio"]["median"]
    return ({field, "least" if least else "value", "held" if prediction["held"] else "failed"},
            {"predicted": float(predicted), "off": measured / float(predicted)})


def chosen(records, query):
    """Name -> numbers of what a query keeps."""
    all_rows = list(rows(records))
    words = [records.machine(word) if word in ("cpu", "h200") else word for word in query.split()]
    kind = next((word for word in words if word in KINDS), None)
    if kind is None:
        raise ValueError(f"'{query}' does not say what to count; there are {', '.join(KINDS)}")
    known = {word for _, _, told, _ in all_rows for word in told} | {"advisory"}
    kept = {}
    for of, name, told, numbers in all_rows:
        if of == kind and all(applies(word, told, numbers, known) for word in words if word != kind):
            kept[name] = numbers
    return kept


def applies(word, told, numbers, known):
    if found := COMPARISON.fullmatch(word):
        what, compare, bound = found.groups()
        if what not in numbers:
            raise ValueError(f"'{word}': what is counted has no '{what}'")
        return COMPARE[compare](numbers[what], float(bound))
    if word not in known:
        raise ValueError(f"count knows no '{word}'; it knows {', '.join(sorted(filter(None, known)))}")
    return word in told


def typical_factor(records, query):
    """The median factor, at least 1, between what was predicted and what was measured."""
    return math.exp(statistics.median(abs(math.log(numbers["off"])) for numbers in chosen(records, query).values()))
