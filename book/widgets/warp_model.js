// The page part of the warp model: the sectors and banks that 32 lanes touch, and the paths of a branch.

const BRANCHES = ["none", "guard", "if_else", "remainder", "quotient"];
const LANES = 32, ROW = 128, SECTOR = 32;
const isShared = s => s.memory === "shared";
const branches = s => s.branch !== "none";
const lanes = Array.from({length: LANES}, (_, lane) => lane);
const sum = all => all.reduce((a, b) => a + b, 0);
const many = (n, one) => `${grouped(n)} ${one}${n === 1 ? "" : one.endsWith("s") ? "es" : "s"}`;

class WarpModel extends Widget {
  static widget = "warp_model";
  static controls = [
    {key: "memory", label: "a[] lies in", value: "global", options: [["global", "global memory"], ["shared", "shared memory"]]},
    {key: "base", label: "Base", value: 0, min: 0, max: 1024},
    {key: "stride", label: "Stride", value: 1, min: 0, max: 1024},
    {key: "bytes", label: "Bytes an element", value: 4, options: [[1, 1], [2, 2], [4, 4], [8, 8], [16, 16]]},
    {key: "swizzle", label: "Swizzle", value: "none", options: [["none", "none"], ["xor", "column xor row"]], shown: isShared},
    {key: "branch", label: "Branch", value: "none",
     options: [["none", "none"], ["guard", "if (lane < k)"], ["if_else", "if (lane < k) else"], ["remainder", "switch (lane % k)"],
               ["quotient", "switch (lane / k)"]]},
    {key: "k", label: "k", value: 16, min: 1, max: 32, shown: branches},
    {key: "pass", label: "Pass (0: all)", value: 0, min: 0, max: 1024, range: true, shown: isShared},
  ];

  // Each lane's pass, from 1, counted over all paths and groups of the instruction; 0 for an idle lane.
  schedule() {
    const m = this.model, size = m.group_size(), passOf = lanes.map(() => 0);
    let total = 0, least = 0;
    for (let path = 0; path < LANES; ++path)
      for (let first = 0; first < LANES; first += size) {
        const here = lanes.slice(first, first + size).filter(lane => m.lane_path(lane) === path);
        if (!here.length) continue;
        for (const lane of here) passOf[lane] = total + m.lane_pass(lane) + 1;
        total = Math.max(...here.map(lane => passOf[lane]));
        ++least;
      }
    return {passOf, total, least};
  }

  draw(state, width) {
    const m = this.model, shared = isShared(state);
    m.configure(state.base, state.stride, state.bytes, state.swizzle === "xor" ? 1 : 0, BRANCHES.indexOf(state.branch), state.k);
    const paths = m.path_count(), all = lanes.slice(0, paths), active = lanes.filter(lane => m.lane_path(lane) >= 0);
    const sectors = sum(all.map(m.sectors_of)), bytes = sum(all.map(m.bytes_of));
    const degree = Math.max(...all.map(m.degree_of)), {passOf, total, least} = this.schedule();
    const slider = this.fields.pass, pass = shared ? Math.min(state.pass, total) : 0;
    slider.max = total;
    slider.value = pass;
    Object.assign(this.dataset, {sectors, passes: total, degree, paths});
    const inSectors = [make("b", {}, many(sectors, "sector")), ` of ${SECTOR} bytes; ${grouped(bytes)} of these ${grouped(sectors * SECTOR)} bytes are wanted, ` +
                       percent(bytes / (sectors * SECTOR))];
    const inPasses = [make("b", {}, many(total, "pass")), total === least ? ", the least there can be: no bank conflict"
                      : `, where ${least} would do: the worst bank is asked for ${degree} different words`];
    const size = m.group_size();
    const halves = size === LANES ? "" : ` A pass delivers at most ${ROW} bytes, so lanes are served ${size} at a time.`;
    this.view.replaceChildren(
        make("p", {class: "code"}, this.code(state)),
        make("p", {class: "answer", role: "status"}, shared ? "Shared memory: " : "Global memory: ", shared ? inPasses : inSectors, "."),
        make("p", {class: "note"}, shared ? `In global memory${state.swizzle === "xor" ? ", without the swizzle," : ""} the same access touches ` : "In shared memory the same access takes ",
             shared ? inSectors.slice(0, 1) : inPasses, "." + (shared ? halves : "")),
        make("h4", {}, paths === 1 ? "The warp's lanes" : `The warp's lanes on ${paths} paths`), this.paths(passOf, pass, width),
        make("p", {class: "note"}, (paths === 1 ? "The warp has one path to issue; " : `The warp issues ${paths} paths, one after the other, each for all ${LANES} lanes; `) +
             `${active.length} of ${LANES * paths} places do work, ${percent(active.length / (LANES * paths))}.`),
        make("h4", {}, shared ? "Shared memory: a column is a bank, a row is 128 bytes" : "Global memory: a row is a line of 128 bytes, four sectors"),
        this.memory(shared, state.bytes, passOf, pass, width));
  }

  code(state) {
    const index = [state.base ? String(state.base) : "", state.stride === 1 ? "lane" : state.stride ? `${state.stride} * lane` : ""].filter(Boolean);
    const access = `a[${index.join(" + ") || "0"}]`;
    return {none: `x = ${access};`, guard: `if (lane < ${state.k}) x = ${access};`,
            if_else: `if (lane < ${state.k}) x = ${access}; else y = ${access};`,
            remainder: `switch (lane % ${state.k}) { case 0: x = ${access}; … }`,
            quotient: `switch (lane / ${state.k}) { case 0: x = ${access}; … }`}[state.branch];
  }

  colour(path) { return `var(--series-${[1, 0, 2, 3, 4, 5][path % 6]})`; }

  // A row for each path; a filled place is a lane at work.
  paths(passOf, pass, width) {
    const m = this.model, count = m.path_count(), left = 44, cell = (width - left) / LANES, high = count > 8 ? 8 : 14, top = 16, drawn = [];
    for (let lane = 0; lane < LANES; lane += width < 420 ? 4 : 2)
      drawn.push(make("text", {class: "tick", x: left + (lane + .5) * cell, y: 11, "text-anchor": "middle"}, String(lane)));
    for (let path = 0; path < count; ++path) {
      if (count <= 8) drawn.push(make("text", {class: "tick", x: 0, y: top + path * high + 11}, count > 1 ? "path " + path : "lane"));
      for (const lane of lanes) {
        const works = m.lane_path(lane) === path, faded = pass && passOf[lane] !== pass;
        drawn.push(make("rect", {x: left + lane * cell + .5, y: top + path * high + .5, width: cell - 1, height: high - 1,
                                 fill: works ? this.colour(path) : "var(--rule)", "fill-opacity": !works ? .45 : faded ? .3 : 1}));
      }
    }
    return make("svg", {viewBox: `0 0 ${width} ${top + count * high}`, role: "img", "aria-label": "which lanes work on which path"}, drawn);
  }

  // The lines that some lane touches, in the order of their addresses, with what each lane reads.
  memory(shared, bytes, passOf, pass, width) {
    const m = this.model, left = 44, cell = (width - left) / LANES, top = 16, drawn = [];
    const reads = lanes.filter(lane => m.lane_path(lane) >= 0).map(lane => ({lane, at: m.address(lane, shared ? 1 : 0)}));
    const rows = [...new Set(reads.map(read => Math.floor(read.at / ROW)))].sort((a, b) => a - b), high = rows.length > 12 ? 12 : 16;
    for (let word = 0; word < LANES; word += shared ? width < 420 ? 4 : 2 : SECTOR / 4)
      drawn.push(shared ? make("text", {class: "tick", x: left + (word + .5) * cell, y: 11, "text-anchor": "middle"}, String(word))
                        : make("text", {class: "tick", x: left + word * cell, y: 11}, "+" + word * 4));
    const x = at => left + at % ROW / 4 * cell, y = at => top + rows.indexOf(Math.floor(at / ROW)) * high;
    const touched = new Set(reads.map(read => Math.floor(read.at / SECTOR)));
    for (const row of rows) {
      drawn.push(make("text", {class: "tick", x: left - 6, y: y(row * ROW) + high - 3, "text-anchor": "end"}, String(row * ROW)));
      for (let part = 0; part < (shared ? LANES : ROW / SECTOR); ++part) {
        const size = shared ? 4 : SECTOR, at = row * ROW + part * size, hit = !shared && touched.has(at / SECTOR);
        drawn.push(make("rect", {x: x(at) + .5, y: y(at) + .5, width: size / 4 * cell - 1, height: high - 1,
                                 fill: hit ? "var(--series-4)" : "var(--rule)", "fill-opacity": hit ? .35 : .45}));
      }
    }
    for (const {lane, at} of reads) {
      const here = !pass || passOf[lane] === pass, inset = bytes < 4 ? 0 : 1;
      drawn.push(make("rect", {x: x(at) + inset, y: y(at) + 2, width: bytes / 4 * cell - 2 * inset, height: high - 4,
                               fill: this.colour(m.lane_path(lane)), "fill-opacity": here ? 1 : .3},
                      make("title", {}, `lane ${lane}, byte ${at}` + (shared ? `, pass ${passOf[lane]}` : ""))));
    }
    return make("svg", {viewBox: `0 0 ${width} ${top + rows.length * high}`, role: "img",
                        "aria-label": shared ? "the words of each bank that lanes read" : "the sectors that lanes touch"}, drawn);
  }
}

define(WarpModel);
