// The page part of the profile sampler: a flame graph of simulated samples with the interval of each width, and how
// often such intervals hold the truth.

// A round of the program, in the order in which its functions run.
const PARTS = [["read", .1, ["main"]], ["attention", .25, ["main", "step"]], ["experts", .45, ["main", "step"]],
               ["sample", .05, ["main", "step"]], ["write", .15, ["main"]]];
const PROFILES = 1000;
const TIMERS = ["periodic", "lot"];

class ProfileSampler extends Widget {
  static widget = "profile_sampler";
  static controls = [
    {key: "samples", label: "Samples", value: 125, min: 1, max: 20000},
    {key: "timer", label: "Timer", value: "periodic", options: [["periodic", "periodic, random start"], ["lot", "each sample drawn by lot"]]},
    {key: "round", label: "Periods of the timer in a round of the program", value: 0.37, min: 0.01, max: 20000, step: "any", shown: s => s.timer === "periodic"},
    {key: "part", label: "Function to judge", value: "read", options: PARTS.map(([name]) => [name, name])},
    {key: "seed", label: "Profile number", value: 1, min: 1, max: 100000},
  ];

  draw(s, width) {
    const m = this.model, timer = TIMERS.indexOf(s.timer), judged = PARTS.findIndex(([name]) => name === s.part), truth = PARTS[judged][1];
    m.clear_program(s.round);
    for (const [, share] of PARTS) m.add_part(share);
    m.take_many(timer, s.samples, judged, s.seed, PROFILES);
    m.take(timer, s.samples, s.seed);
    const count = m.count_of(judged), low = m.share_low(count, s.samples), high = m.share_high(count, s.samples);
    const deviation = m.deviation_of_many(), law = m.law(truth, s.samples), covered = m.covered_of_many();
    Object.assign(this.dataset, {count, low, high, deviation, law, covered, needed: m.needed(truth, .01)});
    this.view.replaceChildren(
        make("p", {class: "answer", role: "status"}, `This profile gives ${s.part} `, make("b", {}, percent(count / s.samples)),
             `, with the interval ${percent(low)} to ${percent(high)}; the truth is ${percent(truth)}.`),
        make("p", {class: "note"}, `Of ${grouped(PROFILES)} simulated profiles ${percent(covered)} have an interval that holds the truth; nominal are ${percent(.95)}. ` +
             `The share scatters by ${percent(deviation)}, by the law for independent samples by ${percent(law)}.`),
        make("h4", {}, "Simulated flame graph; a bar shows where the right end of a box may lie, a dashed line where it is"), this.flame(s, width),
        make("p", {class: "note"}, `To know ${s.part} within one percentage point takes ${grouped(m.needed(truth, .01))} independent samples.`));
  }

  flame(s, width) {
    const m = this.model, row = 40, left = 4, across = width - 8, drawn = [], seen = PARTS.map((_, i) => m.count_of(i));
    const sum = (values, from, to) => values.slice(from, to).reduce((a, b) => a + b, 0);
    const boxes = [[0, "main", 0, 5], [1, "read", 0, 1], [1, "step", 1, 4], [1, "write", 4, 5], [2, "attention", 1, 2], [2, "experts", 2, 3], [2, "sample", 3, 4]];
    for (const [depth, name, from, to] of boxes) {
      const before = sum(seen, 0, from), count = sum(seen, from, to), x = left + before / s.samples * across, wide = count / s.samples * across;
      const y = depth * row, right = share => Math.min(x + share * across, left + across);
      const text = [`${name} ${percent(count / s.samples)}`, name].find(one => 7.2 * one.length + 10 < wide) || "";
      drawn.push(make("rect", {x, y: y + 1, width: wide, height: row - 4, fill: ["var(--series-0)", "var(--series-1)", "var(--series-2)"][depth],
                               "fill-opacity": name === s.part ? .35 : .14, stroke: "var(--rule)"}, make("title", {}, `${name}: ${count} of ${s.samples} samples`)),
                 make("text", {x: x + 6, y: y + 17}, text));
      if (count === s.samples) continue;
      const bar = y + row - (from % 2 ? 7 : 13);  // neighbours' bars may meet
      const truth = right(sum(PARTS.map(part => part[1]), from, to));
      drawn.push(make("line", {x1: right(m.share_low(count, s.samples)), x2: right(m.share_high(count, s.samples)), y1: bar, y2: bar,
                               stroke: "var(--ink)", "stroke-width": 3}),
                 make("line", {class: "mark", x1: truth, x2: truth, y1: y + row - 18, y2: y + row - 3}));
    }
    return make("svg", {viewBox: `0 0 ${width} ${3 * row}`, role: "img", "aria-label": "simulated flame graph"}, drawn);
  }
}

define(ProfileSampler);
