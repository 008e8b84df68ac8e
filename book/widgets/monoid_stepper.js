// The page part of the monoid stepper: one number after the other, or chunk by chunk and then merged.

const TREES = ["left", "right", "halves"];
const NAMES = {softmax: ["m, the maximum", "d, the sum"], moments: ["n", "mean", "M2"]};
const WHOLE = 64;
const brief = x => !Number.isFinite(x) ? "−∞" : String(Number(x.toPrecision(7))).replace(/-/g, "\u2212");

class MonoidStepper extends Widget {
  static widget = "monoid_stepper";
  static controls = [
    {key: "monoid", label: "Monoid", value: "softmax", options: [["softmax", "online softmax (m, d)"], ["moments", "count, mean, squares"]]},
    {key: "values", label: "Values (at most 64, by commas)", value: "1,3,2,5", pattern: "-?\\d{1,6}(\\.\\d{1,6})?(,-?\\d{1,6}(\\.\\d{1,6})?){0,63}"},
    {key: "chunk", label: "Chunk", value: 2, min: 1, max: 64},
    {key: "tree", label: "Merge the chunks", value: "left", options: [["left", "first to last"], ["right", "last to first"], ["halves", "by halves"]]},
    {key: "step", label: "Values taken", value: 64, min: 0, max: 64, range: true},
  ];

  fields_of(index) {
    const get = this.state.monoid === "softmax" ? this.model.softmax_field : this.model.moments_field;
    return NAMES[this.state.monoid].map((_, field) => get(index, field));
  }

  table(head, rows) {
    return make("div", {class: "scroll"}, make("table", {}, make("thead", {}, make("tr", {}, head.map(h => make("th", {}, h)))),
                make("tbody", {}, rows.map(row => make("tr", {}, row.map(cell => make("td", {}, cell)))))));
  }

  draw(state) {
    const m = this.model, values = state.values.split(",").map(Number), names = NAMES[state.monoid];
    values.forEach((x, i) => m.put(i, x));
    this.fields.step.max = values.length;
    const step = Math.min(state.step, values.length);
    this.fields.step.value = step;
    const prefixes = values.map((_, i) => {
      m.fold_first(i + 1, 64, 0);
      return this.fields_of(WHOLE);
    });
    m.fold_first(values.length, state.chunk, TREES.indexOf(state.tree));
    const whole = this.fields_of(WHOLE), parts = [];
    for (let begin = 0; begin < values.length; begin += state.chunk)
      parts.push([values.slice(begin, begin + state.chunk).join(", "), ...this.fields_of(begin / state.chunk).map(brief)]);
    this.dataset.prefixes = prefixes.map(p => p[1]).join(",");
    this.dataset.whole = whole.join(",");
    const exact = m.exact_denominator(values.length);
    this.view.replaceChildren(
        make("p", {class: "answer", role: "status"}, step === 0 ? "Nothing taken: the identity." : `After ${step} of ${values.length}: (`,
             make("b", {}, step ? prefixes[step - 1].map(brief).join(", ") : ""), step ? ")" : ""),
        make("h4", {}, "One after the other"),
        this.table(["value", ...names], prefixes.slice(0, step).map((p, i) => [brief(values[i]), ...p.map(brief)])),
        make("h4", {}, "In chunks"), this.table(["chunk", ...names], parts),
        make("p", {class: "answer"}, "Merged: (", make("b", {}, whole.map(brief).join(", ")), ")"),
        state.monoid === "softmax" ? make("p", {class: "note"}, `In double precision, in two passes, d is ${Number(exact.toPrecision(12))}; the merge in ` +
             `fp32 is off by ${Math.abs(whole[1] - exact).toExponential(1).replace("-", "\u2212")}.`) : "");
  }
}

define(MonoidStepper);
