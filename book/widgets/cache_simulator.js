// The page part of the cache simulator: which reads hit, what lies where, and how far apart a line's uses are.

const PATTERNS = ["stride", "rows", "columns", "transpose", "matmul_ijk", "matmul_ikj"];
const POLICIES = ["lru", "fifo", "plru"];
const powers = (low, high) => {
  const all = [];
  for (let p = low; p <= high; p *= 2) all.push([p, p]);
  return all;
};
const isMatrix = state => state.pattern !== "stride";
const isTiled = state => PATTERNS.indexOf(state.pattern) >= 3;

class CacheSimulator extends Widget {
  static widget = "cache_simulator";
  static controls = [
    {key: "pattern", label: "Reads of 4-byte ints", value: "stride",
     options: [["stride", "one array, by a stride"], ["rows", "matrix, by rows"], ["columns", "matrix, by columns"],
               ["transpose", "transpose A into B"], ["matmul_ijk", "matrix product, ijk"], ["matmul_ikj", "matrix product, ikj"]]},
    {key: "reads", label: "Reads", value: 256, min: 1, max: 4096, shown: s => !isMatrix(s)},
    {key: "stride", label: "Stride (ints)", value: 1, min: 0, max: 4096, shown: s => !isMatrix(s)},
    {key: "passes", label: "Passes", value: 1, min: 1, max: 16},
    {key: "n", label: "n", value: 16, min: 1, max: 64, shown: isMatrix},
    {key: "ld", label: "Row length (ints)", value: 16, min: 1, max: 4096, shown: isMatrix},
    {key: "tile", label: "Tile (0: none)", value: 0, min: 0, max: 64, shown: isTiled},
    {key: "sets", label: "Sets", value: 8, options: powers(1, 64)},
    {key: "ways", label: "Ways", value: 2, options: powers(1, 16)},
    {key: "line", label: "Line (bytes)", value: 64, options: powers(16, 256)},
    {key: "policy", label: "Replacement", value: "lru", options: [["lru", "LRU"], ["fifo", "FIFO"], ["plru", "tree PLRU"]]},
    {key: "step", label: "State after how many accesses", value: 131072, min: 0, max: 131072, range: true},
  ];

  draw(state, width) {
    const m = this.model;
    const count = m.simulate(state.sets, state.ways, state.line, POLICIES.indexOf(state.policy), PATTERNS.indexOf(state.pattern),
                             isMatrix(state) ? state.n : state.reads, isMatrix(state) ? Math.max(state.ld, state.n) : state.stride,
                             state.tile, state.passes);
    this.view.replaceChildren();
    if (count < 0) {
      this.view.append(make("p", {class: "answer", role: "status"}, "More than 131\u202f072 accesses: choose a smaller n or fewer passes."));
      return;
    }
    const slider = this.fields.step;
    slider.max = count;
    const step = Math.min(state.step, count);
    slider.value = step;
    const hits = m.hits_between(0, count), lines = state.sets * state.ways;
    const full = m.distances_between(0, lines), first = m.distances_between(-1, 0);
    this.dataset.hits = hits;
    this.dataset.accesses = count;
    this.view.append(
        make("p", {class: "answer", role: "status"}, make("b", {}, grouped(hits)), " hits of ", make("b", {}, grouped(count)),
             " accesses, " + percent(count ? hits / count : 0)),
        make("p", {class: "note"}, `The cache holds ${grouped(lines)} lines, ${grouped(lines * state.line)} bytes. ` +
             `${grouped(first)} accesses are the first to their line: no policy hits those. ` +
             `An LRU cache of as many lines without sets (fully associative) has ${grouped(full)} hits.`),
        make("h4", {}, "Misses along the run"), this.strip(count, step, width),
        make("h4", {}, "What lies in the cache"), this.contents(state, count, step),
        make("h4", {}, "Reuse distance: other lines between two uses of a line"), this.histogram(count, lines, width));
  }

  // A column stands for a few accesses; its red part is the share of misses.
  strip(count, step, width) {
    const columns = Math.min(count, 128), height = 34, drawn = [];
    for (let c = 0; c < columns; ++c) {
      const begin = Math.floor(c * count / columns), end = Math.floor((c + 1) * count / columns);
      const share = 1 - this.model.hits_between(begin, end) / (end - begin), x = c * width / columns, w = Math.max(1, width / columns - 1);
      drawn.push(make("rect", {class: "one", x, y: height - 3, width: w, height: 3}));
      if (share > 0) drawn.push(make("rect", {class: "two", x, y: (height - 3) * (1 - share), width: w, height: (height - 3) * share}));
    }
    const at = count ? step / count * width : 0;
    return make("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "share of misses along the run"}, drawn,
                make("line", {class: "mark", x1: at, x2: at, y1: -2, y2: height + 2}));
  }

  contents(state, count, step) {
    const m = this.model;
    m.rewind(step);
    let story = "Nothing was read yet; the cache is empty.";
    if (step > 0) {
      const evicted = m.last_evicted();
      story = `Access ${grouped(step)} of ${grouped(count)}: address ${grouped(m.address_of(step - 1))}, line ${grouped(m.last_line())}, ` +
              `set ${m.last_set()}: ` + (m.last_hit() ? "a hit." : evicted >= 0 ? `a miss; line ${grouped(evicted)} leaves.`
                                                                                : "a miss; the way was empty.");
    }
    const sets = [];
    for (let set = 0; set < state.sets; ++set) {
      const cells = [];
      for (let way = 0; way < state.ways; ++way) {
        const line = m.line_at(set, way), last = step > 0 && set === m.last_set() && way === m.last_way();
        cells.push(make("div", {class: "cell" + (last ? m.last_hit() ? " touched" : " filled" : "")}, line < 0 ? "" : String(line)));
      }
      sets.push(make("div", {}, make("div", {class: "small"}, "set " + set), cells));
    }
    const grid = make("div", {class: "sets"}, sets);
    const shown = state.sets <= 16 ? grid : make("details", {open: this.opened, toggle: e => { this.opened = e.target.open; }},
                                                  make("summary", {}, `${state.sets} sets`), grid);
    return make("div", {}, make("p", {class: "note", "aria-live": "polite"}, story), shown);
  }

  histogram(count, lines, width) {
    const m = this.model, bins = [["0", 0, 1]];
    for (let low = 1; low < 8192 && m.distances_between(low, 8192) > 0 || low <= lines; low *= 2)
      bins.push([low === 1 ? "1" : String(low), low, 2 * low]);
    const bars = bins.map(([label, low, high]) => [label, m.distances_between(low, high), high <= lines]);
    bars.push(["first", m.distances_between(-1, 0), false]);
    const highest = Math.max(1, ...bars.map(b => b[1])), height = 130, base = 100, w = width / bars.length;
    const drawn = bars.map(([label, n, fits], i) => [
      make("rect", {class: fits ? "one" : "two", x: i * w + 2, y: base - 80 * n / highest, width: Math.max(1, w - 4), height: 80 * n / highest}),
      n && w > 26 ? make("text", {x: (i + .5) * w, y: base - 80 * n / highest - 4, "text-anchor": "middle", class: "tick"}, short(n)) : "",
      make("text", {x: (i + .5) * w, y: base + 15, "text-anchor": "middle", class: "tick"}, label.length > 3 && w < 34 && Number(label) ? short(Number(label)) : label),
    ].filter(Boolean)).flat();
    const edge = bars.filter(b => b[2]).length * w;
    return make("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "histogram of reuse distances"}, drawn,
                make("line", {class: "axis", x1: 0, x2: width, y1: base, y2: base}),
                make("line", {class: "mark", x1: edge, x2: edge, y1: 6, y2: base}),
                make("text", {x: 0, y: height - 1, class: "tick"}, `blue: below ${grouped(lines)}, hits of the fully associative cache`));
  }
}

const short = n => n < 10000 ? String(n) : Math.round(n / 1000) + "k";

define(CacheSimulator);
