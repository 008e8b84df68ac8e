// The page part of the fusion graph: operations, which of them share a kernel, and the bytes between them.

const SHAPES = ["chain", "centre", "softmax", "online_softmax", "rmsnorm", "variance", "diamond", "blurs"];
const NAMES = {
  centre: ["x", "f", "mean", "f \u2212 mean", "g"], softmax: ["x", "max", "exp", "sum", "divide"],
  online_softmax: ["x", "max, sum", "exp, divide"], rmsnorm: ["x", "residual", "add", "squares", "1/root", "scale"],
  variance: ["x", "sum", "squares", "1/deviation", "normalise"], diamond: ["x", "a", "b", "c", "d"], blurs: ["x", "blur 1", "blur 2"],
};
const INPUT = 0, STENCIL = 2, AGAIN = "-";
const isArray = kind => kind <= STENCIL;
const letter = kernel => String.fromCharCode(97 + kernel);
const gib = n => Number(n.toPrecision(4)) + "\u202fGiB";
const times = (n, one) => `${n} ${one}${n === 1 ? "" : "s"}`;

class FusionGraph extends Widget {
  static widget = "fusion_graph";
  static controls = [
    {key: "graph", label: "Operations", value: "chain",
     options: [["chain", "a chain of maps"], ["centre", "f, minus its mean, g"], ["softmax", "softmax"], ["online_softmax", "online softmax"],
               ["rmsnorm", "residual, RMSNorm"], ["variance", "mean and variance"], ["diamond", "a value used twice"], ["blurs", "two stencils"]]},
    {key: "ops", label: "Maps", value: 5, min: 1, max: 8, shown: s => s.graph === "chain"},
    {key: "gib", label: "GiB an array", value: 1, min: 0.001, max: 1024, step: "any"},
    {key: "held", label: "A row", value: "no", options: [["no", "is too long for the chip"], ["yes", "fits on the chip"]],
     shown: s => !["chain", "diamond", "blurs"].includes(s.graph)},
    {key: "tile", label: "Tile", value: 64, min: 1, max: 4096, shown: s => s.graph === "blurs"},
    {key: "plan", label: "Kernels", value: "", pattern: "[a-i-]{0,9}", shown: () => false},  // a letter for each operation
  ];

  edited(key) {
    if (key === "graph" || key === "ops") this.state.plan = "";
    this.message = "";
  }

  // A plan, as letters of the operations; 0 when it can run.
  tried(plan) {
    this.ops.forEach((op, i) => this.model.set_kernel(op, plan[i] === AGAIN ? -1 : plan.charCodeAt(i) - 97));
    return this.model.evaluate(this.state.held === "yes" ? 1 : 0, this.state.tile);
  }

  reason(refusal) {
    const node = this.names[this.model.refused_node()], blocker = this.names[this.model.refused_blocker()];
    return [
      "",
      `\u201c${node}\u201d needs the result of \u201c${blocker}\u201d for its first element already, and \u201c${blocker}\u201d is complete only after its last. ` +
        "One walk cannot do both, unless the row stays on the chip.",
      `\u201c${node}\u201d would wait for \u201c${blocker}\u201d, which another kernel computes from a result of this one. Neither kernel could run first.`,
      `\u201c${node}\u201d is a value of a whole row. To compute it again would take a walk of its own.`,
      `\u201c${node}\u201d is an output. It is stored in any case.`,
    ][refusal];
  }

  // Takes the plan if it can run and says why not if it cannot. The focus stays on the button.
  attempt(plan, button) {
    const refusal = this.tried(plan);
    this.message = refusal ? this.reason(refusal) : "";
    if (refusal) this.redraw();
    else this.set("plan", plan);
    this.querySelector(`[data-button="${button}"]`)?.focus();
  }

  // Fuses two neighbours, or cuts their kernel in front of the later one and all that needs it.
  press(a, b, button) {
    const plan = [...this.plan], [i, j] = [this.ops.indexOf(a), this.ops.indexOf(b)];
    const free = this.ops.map((_, k) => letter(k)).find(l => !plan.includes(l));
    if (plan[i] === plan[j] && plan[i] !== AGAIN) {
      const after = new Set([b]);
      for (const op of this.ops)
        if (op > b && this.inputs(op).some(input => after.has(input))) after.add(op);
      this.ops.forEach((op, k) => {
        if (plan[k] === this.plan[i] && after.has(op)) plan[k] = free;
      });
    } else {
      for (const k of [i, j])
        if (plan[k] === AGAIN) plan[k] = [...this.ops.map((_, n) => letter(n))].find(l => !plan.includes(l));
      const from = plan[j], to = plan[i];
      plan.forEach((l, k) => {
        if (l === from) plan[k] = to;
      });
    }
    this.attempt(plan.join(""), button);
  }

  again(op, button) {
    const plan = [...this.plan], i = this.ops.indexOf(op);
    plan[i] = plan[i] === AGAIN ? this.ops.map((_, k) => letter(k)).find(l => !plan.includes(l)) : AGAIN;
    this.attempt(plan.join(""), button);
  }

  inputs(node) { return Array.from({length: this.model.input_count(node)}, (_, i) => this.model.input_of(node, i)); }

  draw(state, width) {
    const m = this.model, count = m.choose(SHAPES.indexOf(state.graph), state.ops);
    const nodes = Array.from({length: count}, (_, node) => node);
    this.ops = nodes.filter(node => m.kind_of(node) !== INPUT);
    this.names = NAMES[state.graph] || nodes.map(node => node ? "f" + node : "x");
    const separate = this.ops.map((_, i) => letter(i)).join("");
    this.tried(separate);
    const before = (m.arrays_read() + m.arrays_written()) * state.gib;
    // A plan from the address may be of another graph, or impossible since rows stopped fitting.
    let refusal = state.plan.length === this.ops.length ? this.tried(state.plan) : 0;
    this.plan = state.plan.length === this.ops.length && !refusal ? state.plan : separate;
    const message = this.message || (refusal ? this.reason(refusal) : "");
    this.tried(this.plan);
    const read = m.arrays_read(), written = m.arrays_written(), moved = (read + written) * state.gib;
    Object.assign(this.dataset, {gib: moved, kernels: m.kernels(), live: m.live(), evaluations: m.evaluations(), refused: message ? 1 : 0});
    const again = m.evaluations() - m.operations(), held = m.rows_held();
    this.view.replaceChildren(
        make("p", {class: "answer", role: "status"}, make("b", {}, gib(moved)), ` moved by ${times(m.kernels(), "kernel")}: ${times(read, "array")} read, ${written} written. `,
             before > moved ? `A kernel for each operation moves ${gib(before)}, ${(before / moved).toFixed(2)} times as much.` : ""),
        make("p", {class: "note"}, `A kernel holds at most ${times(m.live(), "value")} in registers at once: of the element at hand, sums, and values of the row. ` +
             (held ? `It keeps ${times(held, "whole row")} on the chip from one walk to the next. ` : "") +
             (again > 1e-9 ? `Some work is done twice: ${percent(again / m.operations())} more operations than the graph has.` : "No operation is done twice.")),
        this.picture(state, width),
        make("p", {class: "note"}, "Bands: what one kernel computes, in one walk. Solid arrows: arrays, through memory or, within a band, in registers. " +
             "Dashed: one value for each row, not counted."),
        make("h4", {}, "Fuse two neighbours, or cut between them"), this.buttons(),
        make("p", {class: message ? "refusal" : "note", "aria-live": "polite"}, message ? "Refused: " + message : "Every kernel can run."),
        this.table());
  }

  buttons() {
    const made = [], users = op => this.ops.filter(user => this.inputs(user).includes(op));
    const button = (name, text, pressed, act) => make("button", {type: "button", "data-button": name, "aria-pressed": pressed ? "true" : "false", click: act}, text);
    for (const a of this.ops)
      for (const b of this.ops)
        if (a < b && this.model.are_neighbours(a, b)) {
          const [i, j] = [this.ops.indexOf(a), this.ops.indexOf(b)], name = `${a}-${b}`;
          made.push(button(name, `${this.names[a]} + ${this.names[b]}`, this.plan[i] === this.plan[j] && this.plan[i] !== AGAIN, () => this.press(a, b, name)));
        }
    for (const op of this.ops)
      if (users(op).length > 1)
        made.push(button("again" + op, `compute \u201c${this.names[op]}\u201d again where it is used`, this.plan[this.ops.indexOf(op)] === AGAIN,
                         () => this.again(op, "again" + op)));
    return make("div", {class: "row"}, made.length ? made : make("span", {class: "note"}, "There is one operation only."));
  }

  table() {
    const m = this.model, in_ = (set, node) => set >>> node & 1, rows = [];
    const stored = node => m.is_output(node) || [...new Set(this.plan)].some(l => l !== AGAIN && in_(m.reads(l.charCodeAt(0) - 97), node));
    const said = nodes => nodes.map(node => this.names[node] + (isArray(m.kind_of(node)) ? "" : " (row)")).join("; ") || "\u2013";
    const all = this.names.map((_, node) => node);
    for (const l of [...new Set(this.plan)].filter(l => l !== AGAIN)) {
      const kernel = l.charCodeAt(0) - 97, own = all.filter(node => in_(m.computed(kernel), node));
      rows.push([said(own).replaceAll(" (row)", ""), said(all.filter(node => in_(m.reads(kernel), node))),
                 said(own.filter(node => stored(node) && this.plan[this.ops.indexOf(node)] === l))]);
    }
    return make("div", {class: "scroll"}, make("table", {}, make("thead", {}, make("tr", {}, ["kernel", "reads", "writes"].map(h => make("th", {}, h)))),
                make("tbody", {}, rows.map(row => make("tr", {}, row.map(cell => make("td", {}, cell)))))));
  }

  // Layers by the longest way from an input; from left to right, or on a phone from top to bottom.
  picture(state, width) {
    const m = this.model, all = this.names.map((_, node) => node), depth = [], across = width >= 520;
    for (const node of all) depth[node] = Math.max(0, ...this.inputs(node).map(input => depth[input] + 1));
    const layers = Math.max(...depth) + 1, rows = all.map(node => all.filter(other => depth[other] === depth[node]));
    const most = Math.max(...rows.map(row => row.length)), skips = all.some(node => this.inputs(node).some(input => depth[node] - depth[input] > 1));
    const along = across ? (width - 30) / layers : 52, w = across ? Math.min(92, along - 18) : Math.min(110, (width - 90) / most - 14), h = 26;
    const bulge = skips ? across ? 44 : 60 : 10, lane = across ? 46 : w + 16, breadth = most * lane + bulge;
    const place = node => {
      const row = rows[node], a = (depth[node] + .5) * along, b = (row.indexOf(node) - (row.length - 1) / 2) * lane + most * lane / 2;
      return across ? [a, b] : [b, a];
    };
    const colour = op => {
      const l = this.plan[this.ops.indexOf(op)];
      return l === undefined || l === AGAIN ? "var(--muted)" : `var(--series-${[1, 0, 2, 3, 4, 5][[...new Set([...this.plan].filter(k => k !== AGAIN))].indexOf(l) % 6]})`;
    };
    const together = (a, b) => m.kind_of(a) !== INPUT && this.plan[this.ops.indexOf(a)] === this.plan[this.ops.indexOf(b)] && this.plan[this.ops.indexOf(a)] !== AGAIN;
    const bands = [], arrows = [], boxes = [];
    // The way of an arrow, and the point that it comes from at its end. One that passes over layers leaves and meets the boxes' long side.
    const way = (from, to) => {
      const [x1, y1] = place(from), [x2, y2] = place(to), side = breadth - 6;
      if (depth[to] - depth[from] <= 1) {
        const scale = Math.min((w / 2 + 1) / Math.abs(x2 - x1 || 1e-9), (h / 2 + 1) / Math.abs(y2 - y1 || 1e-9));
        return [`M${x1},${y1}L${x2},${y2}`, x2 + (x1 - x2) * scale, y2 + (y1 - y2) * scale, Math.atan2(y2 - y1, x2 - x1)];
      }
      if (across) return [`M${x1 + 14},${y1 + h / 2}C${x1 + 14},${side} ${x2 - 14},${side} ${x2 - 14},${y2 + h / 2 + 6}`, x2 - 14, y2 + h / 2 + 1, -Math.PI / 2];
      return [`M${x1 + w / 2},${y1 + 6}C${side},${y1 + 6} ${side},${y2 - 6} ${x2 + w / 2 + 6},${y2 - 6}`, x2 + w / 2 + 1, y2 - 6, Math.PI];
    };
    const head = (x, y, angle, fill) => {
      const point = turn => `${(x - 8 * Math.cos(angle + turn)).toFixed(1)},${(y - 8 * Math.sin(angle + turn)).toFixed(1)}`;
      return make("path", {d: `M${x.toFixed(1)},${y.toFixed(1)}L${point(.4)} ${point(-.4)}Z`, fill});
    };
    for (const a of this.ops)
      for (const b of this.ops)
        if (a < b && together(a, b) && m.are_neighbours(a, b))
          bands.push(make("path", {d: way(a, b)[0], stroke: colour(a), "stroke-width": depth[b] - depth[a] > 1 ? 14 : h + 10, fill: "none"}),
                     ...[a, b].map(op => make("rect", {x: place(op)[0] - w / 2 - 6, y: place(op)[1] - h / 2 - 6, width: w + 12, height: h + 12, rx: 9, fill: colour(op)})));
    for (const node of all)
      for (const input of this.inputs(node)) {
        const row = !isArray(m.kind_of(input)), inside = together(input, node), stroke = inside ? colour(node) : "var(--ink)";
        const [d, x, y, angle] = way(input, node);
        arrows.push(make("path", {d, fill: "none", stroke, "stroke-width": inside || row ? 1.5 : 2.5, "stroke-dasharray": row ? "4 3" : null}), head(x, y, angle, stroke));
        if (m.kind_of(input) !== INPUT)
          arrows.push(make("path", {d, fill: "none", stroke: "transparent", "stroke-width": 20, style: "cursor: pointer",
                                    click: () => this.press(input, node, `${input}-${node}`)}));
      }
    for (const node of all) {
      const [x, y] = place(node), input = m.kind_of(node) === INPUT, anew = this.plan[this.ops.indexOf(node)] === AGAIN;
      boxes.push(make("rect", {x: x - w / 2, y: y - h / 2, width: w, height: h, rx: input ? 0 : 5, fill: "var(--paper)", stroke: colour(node),
                               "stroke-width": input ? 1 : 2, "stroke-dasharray": anew ? "3 3" : null}),
                 make("text", {x, y: y + 4, "text-anchor": "middle"}, this.names[node]));
      if (m.is_output(node)) {
        const [ox, oy] = across ? depth[node] === layers - 1 ? [x + w / 2 + 14, y] : [x, y - h / 2 - 14] : [x - w / 2 - 14, y];
        const [sx, sy] = across ? depth[node] === layers - 1 ? [x + w / 2, y] : [x, y - h / 2] : [x - w / 2, y];
        arrows.push(make("path", {d: `M${sx},${sy}L${ox},${oy}`, stroke: "var(--ink)", "stroke-width": 2.5}),
                    make("circle", {cx: ox, cy: oy, r: 3.5, fill: "var(--ink)"}));
      }
    }
    const [wide, high] = across ? [width, breadth] : [width, layers * along], margin = across ? 0 : Math.max(0, (width - breadth) / 2);
    return make("svg", {viewBox: `${-margin} 0 ${wide} ${high}`, role: "img", "aria-label": "the graph: " + this.summary()},
                make("g", {opacity: .28}, bands), arrows, boxes);
  }

  summary() {
    return [...new Set(this.plan)].filter(l => l !== AGAIN).map((l, i) => `kernel ${i + 1}: ` + this.ops.filter((_, k) => this.plan[k] === l).map(op => this.names[op]).join(", ")).join("; ");
  }
}

define(FusionGraph);
