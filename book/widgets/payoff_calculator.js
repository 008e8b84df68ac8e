// The page part of the payoff calculator: an optimization's expected value over the months, and its break-even.

const amount = x => (x < 0 ? "\u2212" : "") + grouped(Math.round(Math.abs(x)));

class PayoffCalculator extends Widget {
  static widget = "payoff_calculator";
  static controls = [
    {key: "part", label: "The part's share of the time (%)", value: 30, min: 0, max: 100, step: "any"},
    {key: "limit", label: "Its share of its limit (%)", value: 50, min: 1, max: 100, step: "any"},
    {key: "ratio", label: "The idea makes it so many times as fast", value: 1.5, min: 0.1, max: 1000, step: "any"},
    {key: "bill", label: "Bill a month", value: 1000, min: 0, max: 1e9, step: "any"},
    {key: "months", label: "Months of use", value: 24, min: 1, max: 120},
    {key: "chance", label: "Chance of success (%)", value: 80, min: 0, max: 100, step: "any"},
    {key: "cost", label: "Cost of the attempt", value: 800, min: 0, max: 1e9, step: "any"},
    {key: "upkeep", label: "Upkeep a month", value: 10, min: 0, max: 1e9, step: "any"},
  ];

  draw(s, width) {
    const m = this.model;
    m.set_attempt(s.part / 100, s.limit / 100, s.ratio, s.bill, s.months, s.chance / 100, s.cost, s.upkeep);
    const value = m.value_after(s.months), chance = m.chance_needed(), months = m.months_needed();
    Object.assign(this.dataset, {value, chance, months, whole: m.whole(), perfection: m.perfection()});
    const notes = [
      `The whole becomes ${m.whole().toFixed(3)} times as fast and saves ${amount(m.saved())} a month, upkeep subtracted.` +
          (m.possible() < s.ratio ? ` The part cannot become more than ${m.possible().toFixed(2)} times as fast: then it is at its limit.` : ""),
      Number.isFinite(months) ? `A success has paid after ${months.toFixed(1)} months. ` +
          (chance > 1 ? "Even a certain success would not pay in time." : `It is worth beginning from a chance of ${percent(chance)} on.`)
                              : "It saves nothing, so it never pays.",
      `The best idea that there could be, certain, free of upkeep and at the limit, would be worth ${amount(m.perfection())}: ` +
          `it could save ${percent(m.headroom_of())} of the time.`,
    ].map(text => make("p", {class: "note"}, text));
    this.view.replaceChildren(
        make("p", {class: "answer", role: "status"}, "Expected value: ", make("b", {}, amount(value)), value > 0 ? "; begin." : "; leave it."),
        ...notes, make("h4", {}, "Expected value over the months of use; dashed: where it becomes positive"), this.curve(s, width));
  }

  curve(s, width) {
    const m = this.model, height = 190, left = 78, right = width - 12, top = 12, bottom = height - 30;
    const ends = [m.value_after(0), m.value_after(s.months), 0], low = Math.min(...ends), high = Math.max(...ends), span = high - low || 1;
    const x = month => left + month / s.months * (right - left), y = v => bottom - (v - low) / span * (bottom - top);
    const shown = [[low, bottom], [high, top], [0, y(0)]].filter(([v, at], i) => i === 2 || Math.abs(at - y(0)) > 16);
    const zero = s.cost / (m.saved() * s.chance / 100);
    return make("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "expected value over the months of use"},
                shown.map(([v, at]) => make("line", {class: "grid", x1: left, x2: right, y1: at, y2: at})),
                shown.map(([v, at]) => make("text", {class: "tick", x: left - 6, y: at + 4, "text-anchor": "end"}, amount(v))),
                make("polyline", {class: "line", points: [0, s.months].map(t => `${x(t).toFixed(1)},${y(m.value_after(t)).toFixed(1)}`).join(" ")}),
                zero > 0 && zero < s.months ? make("line", {class: "mark", x1: x(zero), x2: x(zero), y1: top, y2: bottom}) : "",
                [0, s.months].map(t => make("text", {class: "tick", x: x(t), y: bottom + 16, "text-anchor": t ? "end" : "start"}, String(t))),
                make("text", {class: "tick", x: (left + right) / 2, y: height - 2, "text-anchor": "middle"}, "months"));
  }
}

define(PayoffCalculator);
