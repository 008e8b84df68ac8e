// The page part of the noise lab: one simulated comparison of A and B, and how often many of them err.

const DESIGNS = ["a_then_b", "alternating", "tossed"];
const DESIGN_NAMES = ["A…A, then B…B", "A B A B …", "pairs, order tossed"];
const ESTIMATORS = ["mean", "median", "minimum", "paired"];
const ESTIMATOR_NAMES = ["means", "medians", "minima", "paired ratios"];
const NOMINAL = 0.05;
const signed = share => share === 0 ? "0\u202f%" : (share < 0 ? "\u2212" : "+") + Math.abs(100 * share).toFixed(2) + "\u202f%";

class NoiseLab extends Widget {
  static widget = "noise_lab";
  static controls = [
    {key: "difference", label: "B slower by (%)", value: 0, min: -20, max: 20, step: "any"},
    {key: "pairs", label: "Runs of each", value: 30, min: 6, max: 200},
    {key: "jitter", label: "Jitter (%)", value: 1, min: 0, max: 20, step: "any"},
    {key: "drift", label: "Drift (%)", value: 0, min: -50, max: 50, step: "any"},
    {key: "outliers", label: "Outliers (% of runs)", value: 0, min: 0, max: 50, step: "any"},
    {key: "clock", label: "Second clock slower by (%)", value: 0, min: 0, max: 50, step: "any"},
    {key: "layout", label: "Luck of layout (%)", value: 0, min: 0, max: 20, step: "any"},
    {key: "design", label: "Design", value: "a_then_b", options: DESIGNS.map((d, i) => [d, DESIGN_NAMES[i]])},
    {key: "estimator", label: "Ratio of", value: "mean", options: ESTIMATORS.map((e, i) => [e, ESTIMATOR_NAMES[i]])},
    {key: "trials", label: "Trials", value: 1000, options: [[100, "100"], [1000, "1000"], [2000, "2000"]]},
    {key: "seed", label: "Seed", value: 1, min: 0, max: 999999},
  ];

  draw(state, width) {
    const m = this.model, design = DESIGNS.indexOf(state.design), chosen = ESTIMATORS.indexOf(state.estimator), difference = state.difference / 100;
    m.set_noise(state.jitter / 100, state.drift / 100, state.outliers / 100, state.clock / 100, state.layout / 100);
    m.run_once(design, state.pairs, difference, state.seed);
    const ratios = ESTIMATORS.map((_, i) => [m.ratio_value(i) - 1, m.ratio_low(i) - 1, m.ratio_high(i) - 1]);
    const [value, low, high] = ratios[chosen];
    const verdict = low > 0 ? "B is called slower" : high < 0 ? "B is called faster" : "no difference is claimed";
    const alarms = this.rates(state, 0, (slower, faster) => slower + faster), alarm = alarms[design][chosen];
    this.dataset.alarms = alarm / state.trials;
    this.dataset.low = low;
    this.dataset.high = high;
    this.view.replaceChildren(
        make("p", {class: "answer", role: "status"}, "Simulated: B takes ", make("b", {}, `${(100 * Math.abs(value)).toFixed(2)}\u202f% ${value < 0 ? "less" : "more"}`),
             ` time than A (${signed(low)} to ${signed(high)}); ${verdict}. The truth is ${signed(difference)}.`),
        make("p", {class: "answer"}, "When there is no difference, this design and estimator claim one in ",
             make("b", {}, percent(alarm / state.trials)), ` of ${grouped(state.trials)} simulated trials; nominal are ${percent(NOMINAL)}.`),
        make("h4", {}, `Simulated runs of seed ${state.seed}, in order of time`), this.runs(state, width),
        make("p", {class: "note"}, make("span", {style: "color: var(--series-1)"}, "○ A"), ", ", make("span", {style: "color: var(--series-0)"}, "□ B"),
             "; 1 is an undisturbed run of A. A mark on the upper edge lies beyond it. A clock state lasts 20 runs on average."),
        make("h4", {}, "B against A by four estimators, with their 95\u202f% intervals"), this.intervals(ratios, chosen, difference, width),
        make("h4", {}, "Simulated A/A trials in which a difference is claimed"),
        this.table(state, design, chosen, alarms, hits => m.share_low(hits, state.trials) > NOMINAL),
        make("p", {class: "note"}, `Red: more than the nominal ${percent(NOMINAL)}, beyond the chance of ${grouped(state.trials)} trials.`),
        ...difference ? [make("h4", {}, `Simulated trials in which the ${signed(difference)} is found, with its sign`),
                         this.table(state, design, chosen, this.rates(state, difference, (slower, faster) => difference > 0 ? slower : faster), () => false)] : []);
  }

  // Of all designs and estimators; kept while only these are chosen anew.
  rates(state, difference, pick) {
    const m = this.model, key = JSON.stringify([state.pairs, state.jitter, state.drift, state.outliers, state.clock, state.layout, state.seed, state.trials, difference]);
    this.kept = (this.kept || []).slice(-3);
    let found = this.kept.find(one => one.key === key);
    if (!found) {
      m.run_many(state.pairs, difference, state.seed, state.trials);
      found = {key, claims: DESIGNS.map((_, d) => ESTIMATORS.map((_, e) => [m.claimed_slower(d, e), m.claimed_faster(d, e)]))};
      this.kept.push(found);
    }
    return found.claims.map(row => row.map(([slower, faster]) => pick(slower, faster)));
  }

  table(state, design, chosen, hits, bad) {
    const cell = (n, d, e) => make("td", {style: bad(n) ? "color: var(--bad)" : null},
                                   make(d === design && e === chosen ? "b" : "span", {}, percent(n / state.trials)));
    return make("div", {class: "scroll"}, make("table", {},
        make("thead", {}, make("tr", {}, make("th", {}, ""), ESTIMATOR_NAMES.map(name => make("th", {}, name)))),
        make("tbody", {}, hits.map((row, d) => make("tr", {}, make("th", {}, DESIGN_NAMES[d]), row.map((n, e) => cell(n, d, e)))))));
  }

  runs(state, width) {
    const m = this.model, count = 2 * state.pairs, height = 170, left = 44, right = width - 8, top = 10, bottom = height - 20, all = [];
    for (let i = 0, a = 0, b = 0; i < count; ++i) all.push(m.run_is_b(i) ? [true, m.time_of_b(b++)] : [false, m.time_of_a(a++)]);
    // The scale is that of nine tenths of the runs, so that an outlier does not press the others flat.
    const sorted = all.map(run => run[1]).sort((a, b) => a - b), most = sorted[Math.floor(.9 * (count - 1))];
    const low = sorted[0], high = Math.max(most + .5 * (most - low), low + .01);
    const x = i => left + (i + .5) / count * (right - left), y = t => bottom - (Math.min(t, high) - low) / (high - low) * (bottom - top);
    const r = Math.max(1.8, Math.min(4, (right - left) / count / 2)), drawn = [];
    for (let i = 0; i <= 3; ++i) {
      const t = low + (high - low) * i / 3;
      drawn.push(make("line", {class: "grid", x1: left, x2: right, y1: y(t), y2: y(t)}),
                 make("text", {class: "tick", x: left - 6, y: y(t) + 4, "text-anchor": "end"}, t.toFixed(high - low < .03 ? 3 : 2)));
    }
    all.forEach(([isB, t], i) => drawn.push(isB
        ? make("rect", {x: x(i) - r, y: y(t) - r, width: 2 * r, height: 2 * r, fill: "none", stroke: "var(--series-0)", "stroke-width": 1.5})
        : make("circle", {cx: x(i), cy: y(t), r, fill: "none", stroke: "var(--series-1)", "stroke-width": 1.5})));
    return make("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "simulated times of the runs in their order"}, drawn,
                make("text", {class: "tick", x: (left + right) / 2, y: height - 2, "text-anchor": "middle"}, `run 1 to ${count}`));
  }

  intervals(ratios, chosen, truth, width) {
    const left = 92, right = width - 10, row = 24, height = 4 * row + 22;
    const ends = [0, truth, ...ratios.flat()].filter(Number.isFinite), span = Math.max(...ends) - Math.min(...ends) || .01;
    const low = Math.min(...ends) - .05 * span, high = Math.max(...ends) + .05 * span;
    const x = share => left + (Math.min(Math.max(share, low), high) - low) / (high - low) * (right - left), drawn = [];
    ratios.forEach(([value, from, to], i) => {
      const y = i * row + row / 2, colour = from > 0 || to < 0 ? "var(--series-0)" : "var(--series-1)";
      drawn.push(make("text", {x: 0, y: y + 4, style: i === chosen ? "font-weight: 700" : null}, ESTIMATOR_NAMES[i]),
                 make("line", {x1: x(from), x2: x(to), y1: y, y2: y, stroke: colour, "stroke-width": 3}),
                 make("circle", {cx: x(value), cy: y, r: 4.5, fill: "var(--paper)", stroke: colour, "stroke-width": 2.5}));
    });
    const marks = [[0, "equal"]];
    if (Math.abs(x(truth) - x(0)) > 70) marks.push([truth, "the truth"]);
    return make("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "the four estimates with their intervals"},
                make("line", {class: "axis", x1: x(0), x2: x(0), y1: 0, y2: 4 * row}),
                truth ? make("line", {class: "mark", x1: x(truth), x2: x(truth), y1: 0, y2: 4 * row}) : "", drawn,
                marks.map(([at, name]) => make("text", {class: "tick", x: Math.min(Math.max(x(at), left), right - 24), y: height - 5, "text-anchor": "middle"}, name)));
  }
}

define(NoiseLab);
