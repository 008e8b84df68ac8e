// The page part of the allocator: which request holds which block, and what is wasted.

const PLACEMENTS = ["paged", "contiguous"];
const SHARINGS = ["none", "in_use", "until_evicted"];
const STATES = ["expected", "waiting", "running", "finished", "never fits"];
const RUNNING = 2, LONGEST = 5000;
const isPaged = s => s.placement === "paged";
const letterOf = request => String.fromCharCode(65 + request);
const times = (n, one) => `${grouped(n)} ${one}${n === 1 ? "" : "s"}`;

class KvAllocator extends Widget {
  static widget = "kv_allocator";
  static controls = [
    {key: "requests", label: "Requests: prompt/output@arrival (at most 12, by commas)", value: "40/8@0,40/8@0,40/8@0",
     pattern: "[1-9]\\d{0,3}/\\d{1,3}@\\d{1,3}(,[1-9]\\d{0,3}/\\d{1,3}@\\d{1,3}){0,11}"},
    {key: "shared", label: "Prefix in common (tokens)", value: 32, min: 0, max: 9999, shown: isPaged},
    {key: "block", label: "Block (tokens)", value: 16, min: 1, max: 256},
    {key: "pool", label: "Blocks in the pool", value: 12, min: 1, max: 256},
    {key: "placement", label: "A request gets", value: "paged", options: [["paged", "blocks as it grows"], ["contiguous", "one range, reserved"]]},
    {key: "sharing", label: "Prefixes are found", value: "until_evicted",
     options: [["none", "never"], ["in_use", "while in use"], ["until_evicted", "until evicted"]], shown: isPaged},
    {key: "reserve", label: "Range (tokens)", value: 64, min: 1, max: 9999, shown: s => !isPaged(s)},
    {key: "step", label: "Step", value: 0, min: 0, max: LONGEST, range: true},
  ];

  start(state, requests) {
    requests.forEach(([prompt, output, arrival], i) => this.model.put(i, prompt, output, arrival));
    this.model.start(requests.length, PLACEMENTS.indexOf(state.placement), SHARINGS.indexOf(state.sharing), state.pool, state.block, state.shared, state.reserve);
  }

  draw(state, width) {
    const m = this.model, requests = state.requests.split(",").map(one => one.split(/[/@]/).map(Number)), history = [];
    this.start(state, requests);
    for (let more = 1; more && history.length <= LONGEST;) {
      more = m.step();
      history.push([m.in_use(), m.cached(), m.unshared()]);
    }
    const step = Math.min(state.step, history.length - 1), slider = this.fields.step;
    slider.max = history.length - 1;
    slider.value = step;
    this.start(state, requests);
    for (let i = 0; i <= step; ++i) m.step();
    const used = m.in_use(), slots = used * state.block, free = state.pool - used, peak = Math.max(...history.map(h => h[0]));
    const running = requests.filter((_, r) => m.state_of(r) === RUNNING).length;
    const waste = slots ? 1 - m.filled() / slots : 0;
    Object.assign(this.dataset, {used, unshared: m.unshared(), waste, peak, evicted: m.evicted(), found: m.found(), preempted: m.preempted()});
    const done = [m.found() ? `${times(m.found(), "prompt token")} found and not computed` : "", m.evicted() ? `${times(m.evicted(), "cached block")} evicted` : "",
                  m.preempted() ? `${times(m.preempted(), "request")} preempted, to compute again` : ""].filter(Boolean).join("; ");
    this.view.replaceChildren(
        make("p", {class: "answer", role: "status"}, `Step ${step}: ${times(running, "request")} in `, make("b", {}, times(used, "block")),
             m.unshared() > used ? `; without sharing ${grouped(m.unshared())}` : "", `. Empty are ${percent(waste)} of their ${grouped(slots)} slots.`),
        make("p", {class: "note"}, `${times(free, "block")} ${free === 1 ? "is" : "are"} held by nobody` +
             (isPaged(state) ? m.cached() ? `; ${grouped(m.cached())} of them still ${m.cached() === 1 ? "has" : "have"} tokens that can be found.` : "."
                             : `; the longest gap is ${grouped(m.longest_gap())}, and a range takes ${grouped(Math.ceil(state.reserve / state.block))}.`) +
             (done ? ` Since the start: ${done}.` : "")),
        this.blocks(state, requests),
        make("h4", {}, "Blocks over time"), this.chart(history, step, state, width),
        make("h4", {}, "Block tables"), this.tables(state, requests));
  }

  // A cell for each block: who holds it, and how much of it is filled.
  blocks(state, requests) {
    const m = this.model, holders = Array.from({length: state.pool}, () => []), cells = [];
    requests.forEach((_, r) => {
      for (let i = 0; i < m.table_size(r); ++i) holders[m.table_entry(r, i)].push(r);
    });
    holders.forEach((held, b) => {
      const share = 100 * m.filled_of(b) / state.block, cached = m.is_cached(b), many = held.length > 3;
      const colour = held.length > 1 ? "var(--series-2)" : "var(--series-1)";
      const name = many ? `${letterOf(held[0])}\u2026${letterOf(held[held.length - 1])}` : held.map(letterOf).join(" ");
      const style = cached ? "border-style: dashed; border-color: var(--series-4)"
                           : held.length ? `background-image: linear-gradient(to right, color-mix(in srgb, ${colour} 38%, transparent) ${share}%, transparent ${share}%)` : null;
      const title = `block ${b}: ` + (held.length ? `${held.map(letterOf).join(", ")}, ${m.filled_of(b)} of ${state.block} slots` : cached ? "cached" : "empty");
      cells.push(make("div", {title}, make("div", {class: "small"}, String(b)), make("div", {class: "cell", style}, held.length ? name : cached ? "cached" : "")));
    });
    const grid = make("div", {class: "sets"}, cells), key = make("p", {class: "note", style: "margin-top: .4rem"},
        "The coloured part of a block is filled." + (isPaged(state) ? " Green: held by more than one request. Dashed: held by nobody, its tokens not yet forgotten." : ""));
    if (state.pool <= 64) return make("div", {}, grid, key);
    return make("div", {}, make("details", {open: this.opened, toggle: e => { this.opened = e.target.open; }}, make("summary", {}, `${state.pool} blocks`), grid), key);
  }

  chart(history, step, state, width) {
    const height = 130, left = 34, right = width - 8, top = 8, bottom = height - 34, most = Math.max(state.pool, ...history.map(h => h[2]), 1);
    const x = i => left + (i + .5) / history.length * (right - left), y = n => bottom - n / most * (bottom - top);
    const path = pick => history.map((h, i) => `${(left + i / history.length * (right - left)).toFixed(1)},${y(pick(h)).toFixed(1)} ` +
                                               `${(left + (i + 1) / history.length * (right - left)).toFixed(1)},${y(pick(h)).toFixed(1)}`).join(" ");
    const drawn = [0, Math.round(most / 2), most].map(n => [make("line", {class: "grid", x1: left, x2: right, y1: y(n), y2: y(n)}),
                                                            make("text", {class: "tick", x: left - 6, y: y(n) + 4, "text-anchor": "end"}, String(n))]).flat();
    const every = Math.max(1, Math.ceil(history.length / (width < 420 ? 5 : 10)));
    for (let i = 0; i < history.length; i += every)
      drawn.push(make("text", {class: "tick", x: x(i), y: bottom + 15, "text-anchor": "middle"}, String(i)));
    return make("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "blocks in use, with cached ones, and without sharing, by step"}, drawn,
                make("polyline", {class: "line exact", style: "stroke: var(--muted)", points: path(h => h[2])}),
                make("polyline", {class: "line", style: "stroke: var(--series-4); stroke-width: 1.5", points: path(h => h[0] + h[1])}),
                make("polyline", {class: "line", style: "stroke-width: 3", points: path(h => h[0])}),
                make("line", {class: "mark", x1: x(step), x2: x(step), y1: top - 4, y2: bottom}),
                make("text", {class: "tick", x: (left + right) / 2, y: height - 3, "text-anchor": "middle"},
                     width < 420 ? "step (thin: with cached; dashed: unshared)" : "step (thick: in use; thin: with cached ones; dashed: in use without sharing)"));
  }

  tables(state, requests) {
    const m = this.model;
    const rows = requests.map(([prompt, output], r) => {
      const held = Array.from({length: m.table_size(r)}, (_, i) => m.table_entry(r, i)), said = STATES[m.state_of(r)];
      const blocks = isPaged(state) || held.length < 2 ? held.join(" ") : `${held[0]} to ${held[held.length - 1]}`;
      return [letterOf(r), said, ["running", "waiting"].includes(said) ? `${m.tokens_of(r)} of ${prompt + output}` : String(prompt + output), blocks || "\u2013"];
    });
    return make("div", {class: "scroll"}, make("table", {}, make("thead", {}, make("tr", {}, ["", "state", "tokens", "blocks"].map(h => make("th", {}, h)))),
                make("tbody", {}, rows.map(row => make("tr", {}, row.map(cell => make("td", {}, cell)))))));
  }
}

define(KvAllocator);
