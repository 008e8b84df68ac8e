// The page part of the semiring selector: one graph, one loop, and the question that a semiring makes of it.

const VERTICES = ["A", "B", "C", "D", "E", "F"];
const SEMIRINGS = [
  {key: "plus_times", label: "+ and ×", line: "row[j] = row[j] + left[k] * b[k * n + j]", asks: "Number of walks", same: false, edge: "1"},
  {key: "min_plus", label: "min and +", line: "row[j] = min(row[j], left[k] + b[k * n + j])", asks: "Length of the shortest walk", same: true, edge: "its weight, a length"},
  {key: "max_plus", label: "max and +", line: "row[j] = max(row[j], left[k] + b[k * n + j])", asks: "Length of the longest walk", same: true, edge: "its weight, a length"},
  {key: "max_times", label: "max and ×", line: "row[j] = max(row[j], left[k] * b[k * n + j])", asks: "Probability of the likeliest walk", same: true, edge: "a tenth of its weight, a probability"},
  {key: "max_min", label: "max and min", line: "row[j] = max(row[j], min(left[k], b[k * n + j]))", asks: "Width of the widest walk", same: true, edge: "its weight, a width"},
  {key: "or_and", label: "or and and", line: "row[j] = row[j] | (left[k] & b[k * n + j])", asks: "Whether there is a walk", same: true, edge: "1"},
];
const ZEROS = [0, Infinity, -Infinity, 0, 0, 0];
const plain = x => Number.isFinite(x) ? String(Number(x.toPrecision(4))) : (x < 0 ? "\u2212" : "") + "∞";

class SemiringSelector extends Widget {
  static widget = "semiring_selector";
  static controls = [
    {key: "semiring", label: "Semiring", value: "min_plus", options: SEMIRINGS.map(s => [s.key, s.label])},
    {key: "from", label: "From", value: "A", options: VERTICES.map(v => [v, v])},
    {key: "to", label: "To", value: "F", options: VERTICES.map(v => [v, v])},
    {key: "length", label: "Walks of", value: "most", options: [["most", "at most so many edges"], ["exactly", "exactly so many"]]},
    {key: "edges", label: "Edges and weights 1 to 9, by commas", value: "AB2,AC5,BC2,BD7,CD3,CE8,DE1,DF6,EF2,EB4",
     pattern: "[A-F]{2}[1-9](,[A-F]{2}[1-9]){0,35}"},
    {key: "steps", label: "Edges of a walk", value: 4, min: 0, max: 12, range: true},
  ];

  draw(s) {
    const m = this.model, n = VERTICES.length, of = SEMIRINGS.findIndex(r => r.key === s.semiring), ring = SEMIRINGS[of];
    for (let i = 0; i < n * n; ++i) m.put(i, 0);
    for (const [from, to, weight] of s.edges.split(",")) m.put(n * VERTICES.indexOf(from) + VERTICES.indexOf(to), Number(weight));
    m.sum_up(of, n, s.steps, s.length === "most" ? 1 : 0);
    const at = (i, j) => m.sum_at(n * i + j), from = VERTICES.indexOf(s.from), to = VERTICES.indexOf(s.to), answer = at(from, to);
    this.dataset.answer = answer;
    this.fields.edges.size = Math.max(12, Math.min(40, s.edges.length, Math.floor(this.clientWidth / 9) - 4));
    const said = of === 5 ? (answer ? "yes" : "no") : plain(answer);
    const cell = (i, j) => make("td", i === from && j === to ? {class: "chosen"} : {}, at(i, j) === ZEROS[of] ? "·" : plain(at(i, j)));
    this.view.replaceChildren(
        make("p", {class: "answer", role: "status"}, `${ring.asks} from ${s.from} to ${s.to}, of ${s.length === "most" ? "at most" : "exactly"} ` +
             `${s.steps} ${s.steps === 1 ? "edge" : "edges"}: `, make("b", {}, said)),
        make("p", {class: "code"}, ring.line),
        make("p", {class: "note"}, `An edge is ${ring.edge}. No edge, and no walk, is ${plain(ZEROS[of])}, shown as a dot. ` +
             (ring.same ? "The addition is idempotent, so a walk may be counted twice." : "The addition is not idempotent: each walk must be counted once.") +
             ` ${grouped(s.steps * n * n * n)} of each operation, whichever they are.`),
        make("div", {class: "scroll"}, make("table", {}, make("thead", {}, make("tr", {}, make("th", {}, "from \\ to"), VERTICES.map(v => make("th", {}, v)))),
             make("tbody", {}, VERTICES.map((v, i) => make("tr", {}, make("th", {}, v), VERTICES.map((_, j) => cell(i, j))))))));
  }
}

define(SemiringSelector);
