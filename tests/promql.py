"""A strict reader of PromQL, as far as deploy/grafana/fathom.json uses it: what it does not know is an error. It knows
types (a rate needs a range, a sum does not take one) and which labels a result has.

https://prometheus.io/docs/prometheus/latest/querying/basics/
"""

import re

AGGREGATIONS = {"sum", "min", "max", "avg", "count"}
FUNCTIONS = {"rate": (["range"], "instant"), "increase": (["range"], "instant"),
             "histogram_quantile": (["scalar", "instant"], "instant"), "vector": (["scalar"], "instant")}
COMPARISONS, SETS = {"==", "!=", ">", "<", ">=", "<="}, {"and", "or", "unless"}
TOKEN = re.compile(r"""\s*(?:
    (?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.]))
  | (?P<range>\[(?:\d+[smhd])+\])
  | (?P<name>[A-Za-z_:][\w:]*)
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<mark>==|!=|>=|<=|=~|!~|[-+*/%^<>=(){},])
)""", re.VERBOSE)


class PromqlError(ValueError):
    pass


class Selector:
    def __init__(self, metric, matchers):
        self.metric, self.matchers = metric, matchers  # matchers: [(label, operator, text)]


class Value:
    """The type of an expression and the labels of its series; None: those of its selectors."""

    def __init__(self, kind, labels=None):
        self.kind, self.labels = kind, labels


class Expression:
    """A parsed expression: its selectors, the labels that aggregations keep with the selectors they apply to, and the
    labels of its result."""

    def __init__(self, text):
        self.text, self.at, self.tokens = text, 0, []
        position, end = 0, len(text.rstrip())
        while position < end:
            found = TOKEN.match(text, position)
            if not found:
                raise PromqlError(f"no token of PromQL: {text[position:]!r}")
            self.tokens.append((found.lastgroup, found.group(found.lastgroup)))
            position = found.end()
        self.selectors, self.kept = [], []
        result = self.expression()
        if self.at != len(self.tokens):
            self.fail("an operator")
        if result.kind == "range":
            raise PromqlError(f"a range cannot be shown: {text}")
        self.labels = result.labels

    def fail(self, wanted):
        got = self.tokens[self.at][1] if self.at < len(self.tokens) else "the end"
        raise PromqlError(f"{wanted} is wanted, not {got!r}: {self.text}")

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else (None, None)

    def take(self, kind, *texts):
        found = self.peek()
        if found[0] != kind or (texts and found[1] not in texts):
            self.fail(" or ".join(texts) or f"a {kind}")
        self.at += 1
        return found[1]

    def accept(self, kind, *texts):
        found = self.peek()
        if found[0] == kind and (not texts or found[1] in texts):
            self.at += 1
            return found[1]
        return None

    def expression(self):
        left = self.operand()
        while self.peek()[1] in {"+", "-", "*", "/", "%", "^"} | COMPARISONS | SETS:
            operator = self.peek()[1]
            self.at += 1
            right = self.operand()
            if "range" in (left.kind, right.kind):
                raise PromqlError(f"{operator} of a range: {self.text}")
            if operator in SETS and "scalar" in (left.kind, right.kind):
                raise PromqlError(f"{operator} of a scalar: {self.text}")
            # Vectors match by their labels: where both are aggregated, by the same ones.
            both = left.kind == right.kind == "instant"
            if both and operator not in SETS and (left.labels or []) != (right.labels or []):
                raise PromqlError(f"{operator} of {left.labels} and {right.labels}: {self.text}")
            if left.kind == "scalar":
                left = right
        return left

    def operand(self):
        while self.accept("mark", "-", "+"):
            pass
        if self.accept("mark", "("):
            value = self.expression()
            self.take("mark", ")")
            return value
        if self.accept("number"):
            return Value("scalar")
        name = self.take("name")
        if name in AGGREGATIONS:
            return self.aggregation()
        if name in FUNCTIONS and self.peek()[1] == "(":
            return self.call(name)
        if self.peek()[1] == "(":
            raise PromqlError(f"unknown function {name}: {self.text}")
        return self.selector(name)

    def aggregation(self):
        labels = []
        if self.accept("name", "by"):
            self.take("mark", "(")
            labels.append(self.take("name"))
            while self.accept("mark", ","):
                labels.append(self.take("name"))
            self.take("mark", ")")
        first = len(self.selectors)
        self.take("mark", "(")
        value = self.expression()
        self.take("mark", ")")
        if value.kind != "instant":
            raise PromqlError(f"an aggregation of a {value.kind}: {self.text}")
        self.kept.append((labels, self.selectors[first:]))
        return Value("instant", labels)

    def call(self, name):
        wanted, result = FUNCTIONS[name]
        self.take("mark", "(")
        arguments = [self.expression()]
        while self.accept("mark", ","):
            arguments.append(self.expression())
        self.take("mark", ")")
        if [argument.kind for argument in arguments] != wanted:
            raise PromqlError(f"{name} takes {wanted}: {self.text}")
        labels = arguments[-1].labels
        if name == "histogram_quantile":
            if not labels or "le" not in labels:
                raise PromqlError(f"histogram_quantile of what has no label le: {self.text}")
            labels = [label for label in labels if label != "le"]
        return Value(result, [] if name == "vector" else labels)

    def selector(self, metric):
        matchers = []
        if self.accept("mark", "{"):
            while not self.accept("mark", "}"):
                label = self.take("name")
                operator = self.take("mark", "=", "!=", "=~", "!~")
                value = self.take("string")[1:-1]
                if "~" in operator:
                    re.compile(value)
                matchers.append((label, operator, value))
                if not self.accept("mark", ","):
                    self.take("mark", "}")
                    break
        self.selectors.append(Selector(metric, matchers))
        return Value("range" if self.accept("range") else "instant")
