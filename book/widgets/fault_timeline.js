// The page part of the fault timeline: what a worker does, what the router believes of it, whose the pages are, and which writes come too late.

const FAULTS = ["killed", "stopped", "cut_off"], GUARDS = ["none", "clock", "tag"];
const IN_TIME = 0, REFUSED = 1, WRONG = 2;
const count = (n, one) => `${n} ${one}${n === 1 ? "" : "s"}`;

class FaultTimeline extends Widget {
  static widget = "fault_timeline";
  static controls = [
    {key: "fault", label: "The worker is", value: "stopped", options: [["killed", "killed"], ["stopped", "stopped, then woken"], ["cut_off", "cut off for a time"]]},
    {key: "begin", label: "at (ms)", value: 450, min: 1, max: 5000},
    {key: "lasts", label: "for (ms)", value: 3000, min: 0, max: 20000, shown: s => s.fault !== "killed"},
    {key: "heartbeat", label: "Heartbeat every (ms)", value: 200, min: 50, max: 5000},
    {key: "timeout", label: "Dead without an answer for (ms)", value: 1000, min: 0, max: 20000},
    {key: "lease", label: "Lease (ms)", value: 2000, min: 0, max: 20000},
    {key: "write", label: "A write takes (ms)", value: 100, min: 50, max: 5000},
    {key: "guard", label: "Against late writes", value: "clock", options: [["none", "nothing"], ["clock", "the worker looks at its lease"], ["tag", "the memory compares tags"]]},
  ];

  draw(s, width) {
    const m = this.model;
    m.run(FAULTS.indexOf(s.fault), s.begin, s.lasts, s.heartbeat, s.timeout, s.lease, s.write, GUARDS.indexOf(s.guard));
    const writes = Array.from({length: m.writes()}, (_, i) => [m.arrives(i), m.fate(i)]);
    const [refused, wrong] = [REFUSED, WRONG].map(fate => writes.filter(write => write[1] === fate).length);
    const [noticed, granted] = [m.noticed(), m.granted_again()].map(time => time < 0 ? null : time - s.begin);
    Object.assign(this.dataset, {noticed: noticed ?? "", granted: granted ?? "", refused, wrong});
    const late = wrong + refused === 0 ? "No write comes too late." : wrong ? `${count(wrong, "write")} of the old worker ${wrong === 1 ? "lies" : "lie"} in pages of another.`
                                                                           : `${count(refused, "late write")} ${refused === 1 ? "is" : "are"} refused.`;
    this.view.replaceChildren(
        make("p", {class: wrong ? "answer refusal" : "answer", role: "status"}, make("b", {}, late)),
        make("p", {class: "note"}, noticed === null ? "The router notices nothing. " : `The router counts the worker as dead ${noticed} ms after the fault, and its requests go on elsewhere. `,
             granted === null ? "The lease does not end." : `The pages are granted to another ${granted} ms after it.`,
             m.told() < 0 ? "" : ` The worker hears of it ${m.told() === m.healed() ? "as soon as" : m.told() - m.healed() + " ms after"} the fault is over.`),
        this.timeline(s, writes, width),
        make("p", {class: "note"}, "Writes, when they arrive: ", ["in time", "refused", "taken, and wrong"].map((name, fate) =>
             [make("span", {style: `color: ${this.colour(fate)}`}, fate === IN_TIME ? "│ " : fate === REFUSED ? "○ " : "✕ "), name + (fate < 2 ? ", " : ".")]).flat(),
             s.fault === "cut_off" ? " What was sent while the worker was cut off arrives when the fault is over." : ""));
  }

  colour(fate) { return ["var(--series-1)", "var(--muted)", "var(--bad)"][fate]; }

  timeline(s, writes, width) {
    const m = this.model, left = 4, right = width - 12, row = 40, bar = 17, bottom = 4 * row + 4;
    const x = time => left + time / m.end() * (right - left), drawn = [];
    const until = time => time < 0 ? m.end() : time, goes = "var(--series-1)", other = "var(--series-0)", gone = "var(--muted)";
    const fault = s.fault === "killed" ? "dead" : s.fault === "stopped" ? "stands still" : "goes on, unheard";
    // On a row: [from, to, colour, word].
    const rows = [
      ["The worker", [[0, s.begin, goes, "works"], [s.begin, until(m.healed()), gone, fault], [until(m.healed()), m.end(), goes, "works"]]],
      ["The router believes that it is", m.noticed() < 0 ? [[0, m.end(), goes, "alive"]] : [[0, m.noticed(), goes, "alive"],
         [m.noticed(), Math.max(m.noticed(), until(m.healed())), gone, "dead"], [until(m.healed()), m.end(), goes, "alive"]]],
      ["The pages belong to", m.granted_again() < 0 ? [[0, m.end(), goes, "the worker"]] : [[0, m.granted_again(), goes, "the worker"], [m.granted_again(), m.end(), other, "another"]]],
      ["Its writes arrive", []],
    ];
    rows.forEach(([title, parts], r) => {
      const y = r * row + 16;
      drawn.push(make("text", {x: left, y: y - 4, "font-weight": 600}, title));
      for (const [from, to, fill, word] of parts) {
        if (to <= from) continue;
        drawn.push(make("rect", {x: x(from), y, width: x(to) - x(from), height: bar, fill, "fill-opacity": .3}, make("title", {}, `${word}, ${from} to ${to} ms`)));
        if (x(to) - x(from) > 7 * word.length + 4) drawn.push(make("text", {x: x(from) + 4, y: y + 13}, word));
      }
    });
    const y = 3 * row + 16;
    drawn.push(make("line", {class: "grid", x1: left, x2: right, y1: y + bar, y2: y + bar}));
    const together = new Map();  // [how many, fate] of those that arrive at a time
    for (const [time, fate] of writes) together.set(time, [(together.get(time)?.[0] || 0) + 1, fate]);
    for (const [time, [many, fate]] of together) {
      const at = x(time), mid = y + bar / 2, stroke = this.colour(fate);
      if (fate === IN_TIME) drawn.push(make("line", {x1: at, x2: at, y1: y + 2, y2: y + bar - 2, stroke, "stroke-width": 2}));
      else if (fate === REFUSED) drawn.push(make("circle", {cx: at, cy: mid, r: 3.5, fill: "none", stroke, "stroke-width": 1.5}));
      else drawn.push(make("path", {d: `M${at - 4},${mid - 4}l8,8m0,-8l-8,8`, stroke, "stroke-width": 2, fill: "none"}));
      if (many > 1) drawn.push(make("text", {x: at - 8, y: mid + 4, "text-anchor": "end"}, `${many} at once`));
    }
    const every = [100, 200, 500, 1000, 2000, 5000, 10000].find(step => m.end() / step <= (width < 420 ? 4 : 9)) || m.end();
    for (let time = 0; time <= m.end(); time += every)
      drawn.push(make("line", {class: "axis", x1: x(time), x2: x(time), y1: bottom - 4, y2: bottom}),
                 make("text", {class: "tick", x: x(time), y: bottom + 13, "text-anchor": time === 0 ? "start" : x(time) > right - 20 ? "end" : "middle"}, time + (time === 0 ? " ms" : "")));
    return make("svg", {viewBox: `0 0 ${width} ${bottom + 18}`, role: "img", "aria-label": "the worker, the router's belief, whose the pages are, and the writes over time"},
                drawn, rows.map((_, r) => make("line", {class: "mark", x1: x(s.begin), x2: x(s.begin), y1: r * row + 16, y2: r * row + 16 + bar})));
  }
}

define(FaultTimeline);
