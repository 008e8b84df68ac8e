// The page part of the float explorer: a number's bits, what an addition keeps, and where a sum stops.

const FORMATS = ["fp32", "fp16", "bf16", "e4m3", "e5m2"];
const ROUNDINGS = ["nearest", "zero"];
const TERMS = ["ones", "harmonic", "alternating"];
const ORDERS = ["forward", "backward", "pairwise"];
const BIGGEST = 1e300;

// A number with at most 12 digits; more would be those of the decimal system and not of the format.
const said = x => Number.isNaN(x) ? "NaN" : !Number.isFinite(x) ? (x < 0 ? "\u2212" : "") + "∞"
                                                                : String(Number(x.toPrecision(12))).replace(/-/g, "\u2212");

class FloatExplorer extends Widget {
  static widget = "float_explorer";
  static controls = [
    {key: "format", label: "Format", value: "bf16", options: [["fp32", "fp32"], ["fp16", "fp16"], ["bf16", "bf16"], ["e4m3", "fp8 E4M3"], ["e5m2", "fp8 E5M2"]]},
    {key: "rounding", label: "Rounding", value: "nearest", options: [["nearest", "to nearest, ties to even"], ["zero", "toward zero"]]},
    {key: "x", label: "x", value: 256, min: -BIGGEST, max: BIGGEST, step: "any"},
    {key: "y", label: "y", value: 1, min: -BIGGEST, max: BIGGEST, step: "any"},
    {key: "terms", label: "Sum of", value: "ones", options: [["ones", "1 + 1 + 1 + …"], ["harmonic", "1 + 1/2 + 1/3 + …"], ["alternating", "1 − 1/2 + 1/3 − …"]]},
    {key: "order", label: "Order", value: "forward", options: [["forward", "first to last"], ["backward", "last to first"], ["pairwise", "by halves"]]},
    {key: "n", label: "Terms, as a power of two", value: 10, min: 0, max: 21, range: true},
    {key: "bits", label: "Bits", value: -1, min: -1, max: 2 ** 32 - 1, shown: () => false},  // of x, where the reader set them
  ];

  edited(key) {
    if (key === "x" || key === "format") this.state.bits = -1;
  }

  flip(place) {
    const bits = (this.code ^ (1 << place)) >>> 0, value = this.model.value_of(FORMATS.indexOf(this.state.format), bits);
    this.state.bits = bits;
    if (Number.isFinite(value)) this.state.x = value;
    this.changed();
    this.querySelector(`[data-place="${place}"]`).focus();
  }

  draw(state, width) {
    const m = this.model, format = FORMATS.indexOf(state.format), rounding = ROUNDINGS.indexOf(state.rounding);
    const man = m.mantissa_bits(format), exp = m.exponent_bits(format), total = 1 + exp + man;
    const round = v => m.value_of(format, m.bits_of(format, v, rounding));
    this.code = state.bits >= 0 && state.bits < 2 ** total ? state.bits : m.bits_of(format, state.x, rounding) >>> 0;
    const x = m.value_of(format, this.code), y = round(state.y), sum = round(x + y);
    const n = 2 ** state.n, total_sum = m.sum_of(format, rounding, TERMS.indexOf(state.terms), ORDERS.indexOf(state.order), n);
    const exact = m.exact_sum(TERMS.indexOf(state.terms), n);
    this.dataset.value = x;
    this.dataset.sum = sum;
    this.dataset.total = total_sum;
    const field = Number(BigInt(this.code) >> BigInt(man) & (1n << BigInt(exp)) - 1n), bias = 2 ** (exp - 1) - 1;
    const mantissa = this.code % 2 ** man, sign = this.code >= 2 ** (total - 1) ? "\u2212" : "";
    let formula = ["A code that stands for no finite number."];
    let step = "";
    if (Number.isFinite(x)) {
      const power = (field === 0 ? 1 : field) - bias;
      formula = [`${sign}(${field === 0 ? 0 : 1} + ${grouped(mantissa)}/${grouped(2 ** man)}) × 2`, make("sup", {}, said(power)),
                 field === 0 && mantissa ? ", a subnormal." : "."];
      step = ` Its neighbours are ${said(2 ** (power - man))} apart${mantissa === 0 && field > 1 ? " above, half as much below" : ""}.`;
    }
    const lost = state.bits < 0 && Number.isFinite(x) && x !== state.x ? ` What you typed is off by ${said(x - state.x)}.` : "";
    this.view.replaceChildren(
        make("p", {class: "answer", role: "status"}, "x is ", make("b", {}, said(x))),
        this.bits(total, exp, man),
        make("p", {class: "note"}, formula, step + lost),
        make("p", {class: "answer"}, "x + y = ", make("b", {}, said(sum)), ` in ${state.format}; in double precision ${said(x + y)}`),
        make("p", {class: "note"}, sum === x && y !== 0 ? "The addition changed nothing: the exact sum rounds back to x."
                                       : Number.isFinite(sum) ? `Rounding took away ${said(x + y - sum)}.` : "The sum is no finite number."),
        make("p", {class: "answer"}, `The sum of ${grouped(n)} terms is `, make("b", {}, said(total_sum)), "; in double precision ",
             said(exact)),
        make("h4", {}, "The sum over the number of terms"), this.plot(state, format, rounding, width));
  }

  bits(total, exp, man) {
    const buttons = [];
    for (let place = total - 1; place >= 0; --place) {
      const kind = place === total - 1 ? "sign" : place >= man ? "exponent" : "mantissa", bit = Math.floor(this.code / 2 ** place) % 2;
      buttons.push(make("button", {type: "button", class: kind, "data-place": place, "aria-pressed": bit ? "true" : "false",
                                   "aria-label": `${kind} bit ${place === total - 1 ? "" : place >= man ? place - man : place}: ${bit}`,
                                   click: () => this.flip(place)}, String(bit)));
    }
    return make("div", {}, make("div", {class: "bits"}, buttons),
                make("p", {class: "note"}, `1 sign bit, ${exp} exponent bits, ${man} mantissa bits; press one to flip it.`));
  }

  plot(state, format, rounding, width) {
    const terms = TERMS.indexOf(state.terms), order = ORDERS.indexOf(state.order), last = Math.max(1, state.n);
    const key = [format, rounding, terms, order].join();
    if (this.kept?.key !== key) this.kept = {key, sums: [], exact: []};
    const {sums, exact} = this.kept;
    for (let p = sums.length; p <= last; ++p) {
      sums.push(this.model.sum_of(format, rounding, terms, order, 2 ** p));
      exact.push(this.model.exact_sum(terms, 2 ** p));
    }
    const height = 190, left = 62, right = width - 10, top = 12, bottom = height - 34, ones = state.terms === "ones";
    const scale = v => ones ? Math.log2(Math.max(v, 1)) : v;
    const shown = [...sums.slice(0, last + 1), ...exact.slice(0, last + 1)].filter(Number.isFinite).map(scale);
    const low = ones ? 0 : state.terms === "alternating" ? 0.4 : 0, high = Math.max(...shown, low + 1e-9) * 1.05;
    const x = p => left + p / last * (right - left), y = v => bottom - (Math.min(Math.max(scale(v), low), high) - low) / (high - low) * (bottom - top);
    const path = values => values.slice(0, last + 1).map((v, p) => Number.isFinite(v) ? `${x(p).toFixed(1)},${y(v).toFixed(1)}` : "").filter(Boolean).join(" ");
    const drawn = [];
    for (let i = 0; i <= 3; ++i) {
      const at = low + (high - low) * i / 3, value = ones ? 2 ** Math.round(at) : at;
      drawn.push(make("line", {class: "grid", x1: left, x2: right, y1: y(value), y2: y(value)}),
                 make("text", {class: "tick", x: left - 6, y: y(value) + 4, "text-anchor": "end"}, ones ? grouped(value) : value.toPrecision(3)));
    }
    const every = Math.ceil(last / (width < 420 ? 4 : 8));
    for (let p = 0; p <= last; p += every)
      drawn.push(make("text", {class: "tick", x: x(p), y: bottom + 16, "text-anchor": "middle"}, short(2 ** p)));
    return make("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "the sum by the number of terms, in the format and exactly"},
                drawn, make("polyline", {class: "line exact", points: path(exact)}),
                make("polyline", {class: "line", style: "stroke: var(--series-0); stroke-width: 3", points: path(sums)}),
                make("text", {class: "tick", x: (left + right) / 2, y: height - 2, "text-anchor": "middle"}, "terms (dashed: in double precision)"));
  }
}

const short = n => n < 10000 ? String(n) : n < 1 << 20 ? Math.round(n / 1024) + "Ki" : n / (1 << 20) + "Mi";

define(FloatExplorer);
