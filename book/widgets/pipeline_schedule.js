// The page part of the pipeline schedules: what each stage does when, where it waits, and what it must keep.

const SCHEDULES = ["gpipe", "1f1b", "interleaved", "zero_bubble", "dualpipe"];
const SCHEDULE_NAMES = ["GPipe", "1F1B", "interleaved 1F1B", "zero bubble, ZB-H1", "DualPipe"];
const KINDS = ["forward", "backward", "gradient of inputs", "gradient of weights"];
const COLOURS = ["var(--series-1)", "var(--series-0)", "var(--series-3)", "var(--series-2)"];
const BOTH = 4, CANNOT = [
  "", "The gradients of weights are a part of B: W is at most B.", "Interleaving wants a number of microbatches that is a multiple of the stages.",
  "DualPipe wants an even number of stages.", "DualPipe wants an even number of microbatches: half of them come from each end.",
  "DualPipe wants at least two microbatches for each stage.",
];
const short = x => String(Number(x.toFixed(3)));
const times = (x, one) => `${short(x)} ${one}${x === 1 ? "" : one.endsWith("ch") ? "es" : "s"}`;

class PipelineSchedule extends Widget {
  static widget = "pipeline_schedule";
  static controls = [
    {key: "schedule", label: "Schedule", value: "1f1b", options: SCHEDULES.map((s, i) => [s, SCHEDULE_NAMES[i]])},
    {key: "stages", label: "Stages", value: 4, min: 1, max: 16},
    {key: "microbatches", label: "Microbatches", value: 8, min: 1, max: 64},
    {key: "chunks", label: "Chunks a stage", value: 2, min: 1, max: 4, shown: s => s.schedule === "interleaved"},
    {key: "f", label: "Forward, F", value: 1, min: 0.01, max: 100, step: "any"},
    {key: "b", label: "Backward, B", value: 2, min: 0.01, max: 100, step: "any"},
    {key: "w", label: "of it weights, W", value: 1, min: 0, max: 100, step: "any"},
    {key: "both", label: "F and B at once", value: 3, min: 0.01, max: 200, step: "any", shown: s => s.schedule === "dualpipe"},
    {key: "transfer", label: "Transfer", value: 0, min: 0, max: 100, step: "any"},
    {key: "time", label: "Time", value: 0, min: 0, max: 20000, range: true},
  ];

  run(state, schedule) { return this.model.run(schedule, state.stages, state.microbatches, state.chunks); }

  peak(state) {
    const all = Array.from({length: state.stages}, (_, stage) => this.model.most_held(stage));
    return [Math.max(...all), all.indexOf(Math.max(...all))];
  }

  draw(state, width) {
    const m = this.model, chosen = SCHEDULES.indexOf(state.schedule);
    m.set_times(state.f, state.b, state.w, state.both, state.transfer);
    const refused = this.run(state, chosen);
    if (refused) {
      this.dataset.total = "";
      this.view.replaceChildren(make("p", {class: "refusal", role: "status"}, CANNOT[refused]), make("h4", {}, "The schedules"), this.table(state, chosen));
      return;
    }
    const total = m.total(), [peak, worst] = this.peak(state), ideal = state.microbatches * (chosen === 4 ? state.both : state.f + state.b);
    const slider = this.fields.time, time = Math.min(state.time, Math.ceil(total));
    slider.max = Math.ceil(total);
    slider.value = time;
    Object.assign(this.dataset, {total, bubble: m.bubble(), peak});
    const held = Array.from({length: state.stages}, (_, stage) => short(m.held_at(stage, time))).join(", ");
    this.view.replaceChildren(
        make("p", {class: "answer", role: "status"}, `${SCHEDULE_NAMES[chosen]}: `, make("b", {}, short(total)), " in all. Of the stages\u2019 time ", make("b", {}, percent(m.bubble())),
             " is bubbles, in which they wait."),
        make("p", {class: "note"}, `Without a bubble ${times(state.microbatches, "microbatch")} would take ${short(ideal)}. ` +
             `Stage ${worst} keeps the most: the activations of ${times(peak, "microbatch")} at once.` +
             (chosen === 4 ? " Each stage also holds the weights of two: microbatches come from both ends." : "")),
        this.gantt(state, total, time, peak, width),
        make("p", {class: "note"}, KINDS.map((kind, i) => [make("span", {style: `color: ${COLOURS[i]}`}, "■ "), kind + (i < 3 ? ", " : "")]).flat(),
             `. Grey below a stage: activations that it keeps, at the right their maximum. At time ${time} the stages keep ${held}.`),
        make("h4", {}, "The schedules, with these numbers"), this.table(state, chosen));
  }

  gantt(state, total, time, peak, width) {
    const m = this.model, left = 20, right = width - 26, bar = state.stages > 8 ? 13 : 20, track = state.stages > 8 ? 9 : 13, row = bar + track + 5;
    const x = t => left + (total ? t / total : 0) * (right - left), bottom = state.stages * row, drawn = [], labels = [];
    const paths = new Map();
    const rect = (kind, odd, x1, x2, y, h) => {
      const key = kind + 4 * odd;
      paths.set(key, (paths.get(key) || "") + `M${x1.toFixed(2)},${y.toFixed(1)}H${x2.toFixed(2)}V${(y + h).toFixed(1)}H${x1.toFixed(2)}Z`);
    };
    for (let stage = 0; stage < state.stages; ++stage) {
      const y = stage * row, base = y + bar + track;
      drawn.push(make("rect", {x: left, y, width: right - left, height: bar, fill: "var(--rule)", "fill-opacity": .4}));
      labels.push(make("text", {class: "tick", x: left - 6, y: y + bar - 4, "text-anchor": "end"}, String(stage)),
                  make("text", {class: "tick", x: right + 5, y: base - 1}, short(m.most_held(stage))));
      const edges = [];
      for (let i = 0; i < m.ops(stage); ++i) {
        const [begin, end, kind, batch, back] = [m.op_begin(stage, i), m.op_end(stage, i), m.op_kind(stage, i), m.op_microbatch(stage, i), m.op_backward_microbatch(stage, i)];
        const gap = Math.min(.5, (x(end) - x(begin)) / 8), x1 = x(begin) + gap, x2 = x(end) - gap;
        if (kind === BOTH) {
          rect(0, batch % 2, x1, x2, y, bar / 2);
          rect(1, back % 2, x1, x2, y + bar / 2, bar / 2);
        } else {
          rect(kind, batch % 2, x1, x2, y, bar);
          if (x2 - x1 > (batch > 9 ? 18 : 11) && bar > 16) labels.push(make("text", {x: (x1 + x2) / 2, y: y + bar - 5, "text-anchor": "middle"}, String(batch)));
        }
        edges.push(begin, end);
      }
      // What a stage keeps changes at the begin or end of a pass only.
      let area = `M${left},${base}`;
      for (const edge of [...new Set(edges)].sort((a, b) => a - b)) {
        const high = base - m.held_at(stage, edge) / peak * (track - 2);
        area += `H${x(edge).toFixed(1)}V${high.toFixed(1)}`;
      }
      drawn.push(make("path", {d: area + `H${right}V${base}Z`, fill: "var(--muted)", "fill-opacity": .6}));
    }
    for (const [key, d] of paths) drawn.push(make("path", {d, fill: COLOURS[key % 4], "fill-opacity": key < 4 ? .62 : .4}));
    const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find(step => total / step <= (width < 420 ? 6 : 12)) || total;
    for (let t = 0; t <= total; t += every)
      labels.push(make("text", {class: "tick", x: x(t), y: bottom + 12, "text-anchor": "middle"}, String(t)));
    return make("svg", {viewBox: `0 -4 ${width} ${bottom + 22}`, role: "img", "aria-label": "what each stage does over time"}, drawn,
                make("line", {class: "mark", x1: x(Math.min(time, total)), x2: x(Math.min(time, total)), y1: -4, y2: bottom}), labels);
  }

  table(state, chosen) {
    const m = this.model, rows = SCHEDULE_NAMES.map((name, i) => {
      const refused = this.run(state, i);
      if (refused) return [name, "\u2013", "\u2013", "\u2013", "\u2013"];
      return [i === 2 ? `${name}, ${times(state.chunks, "chunk")}` : name, short(m.total()), short(m.total() * m.bubble()), percent(m.bubble()), short(this.peak(state)[0])];
    });
    this.run(state, chosen);
    return make("div", {class: "scroll"}, make("table", {}, make("thead", {}, make("tr", {}, ["", "time", "a stage waits", "bubble", "kept at most"].map(h => make("th", {}, h)))),
                make("tbody", {}, rows.map((row, i) => make("tr", {}, row.map(cell => make("td", {}, i === chosen ? make("b", {}, cell) : cell)))))));
  }
}

define(PipelineSchedule);
