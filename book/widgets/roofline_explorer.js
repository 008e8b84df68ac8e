// The page part of the roofline explorer: a kernel under the ceilings that the records measured, and its time.

const SETS = [
  ["cpu-dram", "Zen 4, one thread: fp32, DRAM", "cpu: fp32 peak of avx2+fma, 1 thread", "cpu: read bandwidth of DRAM, 1 thread"],
  ["cpu-l3", "Zen 4, one thread: fp32, L3", "cpu: fp32 peak of avx2+fma, 1 thread", "cpu: read bandwidth of L3, 1 thread"],
  ["cpu-l2", "Zen 4, one thread: fp32, L2", "cpu: fp32 peak of avx2+fma, 1 thread", "cpu: read bandwidth of L2, 1 thread"],
  ["h200-fp32", "H200: fp32, DRAM", "h200: fp32 FMA peak", "h200: read bandwidth of DRAM"],
  ["h200-bf16", "H200: bf16 tensor cores, DRAM", "h200: bf16 tensor peak (our mma loop)", "h200: read bandwidth of DRAM"],
].filter(set => CEILINGS[set[2]] && CEILINGS[set[3]]);

// A size in the unit that keeps it between 1 and 1000.
function scaled(value, unit) {
  for (const [prefix, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1], ["m", 1e-3], ["µ", 1e-6], ["n", 1e-9]])
    if (value >= .9995 * size) return Number((value / size).toPrecision(3)) + "\u202f" + prefix + unit;
  return value === 0 ? "0\u202f" + unit : value.toExponential(2) + "\u202f" + unit;
}
const three = x => x >= 100 ? x.toFixed(0) : x.toPrecision(3);
const isLayer = s => s.kernel === "layer";
const isFree = s => s.kernel === "free";
const isOwn = s => s.ceilings === "own";
const LOW = -5, HIGH = 13;  // the picture's intensities, in powers of two

class RooflineExplorer extends Widget {
  static widget = "roofline_explorer";
  static controls = [
    {key: "ceilings", label: "Ceilings", value: SETS.length ? SETS[0][0] : "own",
     options: [...SETS.map(s => [s[0], s[1]]), ["own", "numbers of your own"]]},
    {key: "peak", label: "Peak (GFLOP/s)", value: 1000, min: 0.001, max: 1e8, step: "any", shown: isOwn},
    {key: "bandwidth", label: "Bandwidth (GB/s)", value: 100, min: 0.001, max: 1e6, step: "any", shown: isOwn},
    {key: "kernel", label: "Kernel", value: "layer",
     options: [["layer", "dense layer, by batch"], ["dot", "dot product, fp32"], ["triad", "triad, fp64"],
               ["triad_allocate", "triad, fp64, write-allocate"], ["free", "any intensity"]]},
    {key: "in", label: "Inputs", value: 4096, min: 1, max: 65536, shown: isLayer},
    {key: "out", label: "Outputs", value: 4096, min: 1, max: 65536, shown: isLayer},
    {key: "bytes", label: "Bytes an element", value: 2, options: [[1, 1], [2, 2], [4, 4], [8, 8]], shown: isLayer},
    {key: "fixed", label: "Fixed cost (µs)", value: 0, min: 0, max: 1e6, step: "any"},
    {key: "batch", label: "Batch", value: 1, min: 1, max: 1024, range: true, shown: isLayer},
    {key: "intensity", label: "Intensity, as a power of two (or drag the point)", value: 0, min: LOW, max: HIGH, step: 0.25, range: true,
     shown: isFree},
  ];

  work(s) {
    if (isLayer(s))
      return [this.model.layer_flops(s.batch, s.in, s.out, s.bytes), this.model.layer_bytes(s.batch, s.in, s.out, s.bytes)];
    if (isFree(s)) return [1e9 * 2 ** s.intensity, 1e9];
    const n = 1 << 24;
    return [2 * n, {dot: 8, triad: 24, triad_allocate: 32}[s.kernel] * n];
  }

  draw(state, width) {
    const m = this.model, set = SETS.find(s => s[0] === state.ceilings);
    const peak = set ? CEILINGS[set[2]].rate : state.peak * 1e9, bandwidth = set ? CEILINGS[set[3]].rate : state.bandwidth * 1e9;
    const [flops, bytes] = this.work(state), intensity = flops / bytes, ridge = m.ridge_of(peak, bandwidth);
    const seconds = m.seconds(peak, bandwidth, flops, bytes, state.fixed * 1e-6);
    const arithmetic = flops / peak, memory = bytes / bandwidth;
    this.dataset.ridge = ridge;
    this.dataset.intensity = intensity;
    this.dataset.seconds = seconds;
    const bound = state.fixed * 1e-6 > Math.max(arithmetic, memory) ? "the fixed cost" : intensity < ridge ? "memory" : "arithmetic";
    const notes = [make("p", {class: "note"}, `${scaled(flops, "FLOP")} in ${scaled(bytes, "B")}: ${three(intensity)} flop/B. ` +
        `The ridge, ${scaled(peak, "FLOP/s")} over ${scaled(bandwidth, "B/s")}, lies at ${three(ridge)} flop/B.` +
        (set ? ` Both are medians of records: of ${CEILINGS[set[2]].points} and of ${CEILINGS[set[3]].points} points.` : ""))];
    if (isLayer(state)) {
      const batch = m.layer_batch_at_ridge(peak, bandwidth, state.in, state.out, state.bytes);
      notes.push(make("p", {class: "note"}, batch ? `From a batch of ${grouped(batch)} on, arithmetic is the limit.`
                                                  : "No batch makes arithmetic the limit of this layer."));
    }
    this.view.replaceChildren(
        make("p", {class: "answer", role: "status"}, "At least ", make("b", {}, scaled(seconds, "s")), `; the limit is ${bound}: `,
             make("b", {}, scaled(flops / seconds, "FLOP/s")), ", " + percent(flops / seconds / peak) + " of the peak"),
        ...notes, this.roof(state, peak, bandwidth, ridge, intensity, flops / seconds, width),
        make("h4", {}, "Time: the fixed cost, then the longer of the two"), this.bars(state.fixed * 1e-6, arithmetic, memory, width));
  }

  roof(state, peak, bandwidth, ridge, intensity, reached, width) {
    const height = 250, left = 62, bottom = height - 34, top = 14, right = width - 8;
    const x = i => left + (Math.log2(i) - LOW) / (HIGH - LOW) * (right - left);
    const highest = Math.log10(peak) + .25, lowest = Math.min(Math.log10(this.model.roof(peak, bandwidth, 2 ** LOW)), highest - 2);
    const y = f => bottom - (Math.log10(Math.max(f, 10 ** lowest)) - lowest) / (highest - lowest) * (bottom - top);
    const drawn = [];
    for (let p = Math.ceil(lowest); p <= highest; ++p)
      drawn.push(make("line", {class: "grid", x1: left, x2: right, y1: y(10 ** p), y2: y(10 ** p)}),
                 make("text", {class: "tick", x: left - 6, y: y(10 ** p) + 4, "text-anchor": "end"}, scaled(10 ** p, "").trim()));
    for (let p = LOW + 1; p <= HIGH; p += width < 420 ? 4 : 2)
      drawn.push(make("text", {class: "tick", x: x(2 ** p), y: bottom + 16, "text-anchor": "middle"}, p < 0 ? "1/" + 2 ** -p : String(2 ** p)));
    const line = [];
    for (let p = LOW; p <= HIGH; p += .125) line.push(`${x(2 ** p).toFixed(1)},${y(this.model.roof(peak, bandwidth, 2 ** p)).toFixed(1)}`);
    const at = Math.min(Math.max(intensity, 2 ** LOW), 2 ** HIGH), onRidge = ridge > 2 ** LOW && ridge < 2 ** HIGH;
    const svg = make("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", style: isFree(state) ? "cursor: ew-resize; touch-action: pan-y" : null,
                             "aria-label": "roofline: attainable rate over intensity"},
                     drawn, make("polyline", {class: "line", points: line.join(" ")}),
                     onRidge ? make("line", {class: "mark", x1: x(ridge), x2: x(ridge), y1: y(peak), y2: bottom}) : "",
                     make("circle", {cx: x(at), cy: y(reached), r: 7, fill: "var(--paper)", stroke: "var(--series-0)", "stroke-width": 3}),
                     make("text", {class: "tick", x: (left + right) / 2, y: height - 2, "text-anchor": "middle"}, "intensity (flop/B)"),
                     make("text", {class: "tick", x: 0, y: 10}, "FLOP/s"));
    if (isFree(state)) {
      const drag = event => {
        if (event.type === "pointermove" && !event.buttons) return;
        const box = svg.getBoundingClientRect(), p = LOW + ((event.clientX - box.left) * width / box.width - left) / (right - left) * (HIGH - LOW);
        const step = Math.round(Math.min(Math.max(p, LOW), HIGH) * 4) / 4;
        if (step !== this.state.intensity) this.set("intensity", step);
      };
      svg.addEventListener("pointerdown", drag);
      svg.addEventListener("pointermove", drag);
    }
    return svg;
  }

  bars(fixed, arithmetic, memory, width) {
    const left = 80, right = 84, total = fixed + Math.max(arithmetic, memory), w = t => total ? t / total * (width - left - right) : 0;
    const row = (name, time, y, kind) => [
      make("text", {x: left - 8, y: y + 13, "text-anchor": "end"}, name),
      fixed ? make("rect", {x: left, y, width: w(fixed), height: 18, fill: "var(--muted)"}) : "",
      make("rect", {class: kind, x: left + w(fixed), y, width: Math.max(1, w(time)), height: 18}),
      make("text", {class: "tick", x: left + w(fixed) + w(time) + 6, y: y + 13}, scaled(time, "s"))].filter(Boolean);
    return make("svg", {viewBox: `0 0 ${width} 46`, role: "img", "aria-label": "time of arithmetic and of memory"},
                row("arithmetic", arithmetic, 0, "one"), row("memory", memory, 24, "two"));
  }
}



define(RooflineExplorer);
