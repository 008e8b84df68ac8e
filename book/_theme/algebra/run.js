// What `fathom book --serve` adds to a page: buttons that run the experiments of its run lines, and figures that follow
// the records. The server puts it into the pages that it sends; the site on disk has none of it.
(function () {
  "use strict";
  const script = document.currentScript;
  const store = {  // of this origin: other tabs have it too
    get: name => { try { return localStorage.getItem(name); } catch (e) { return null; } },
    set: (name, value) => { try { localStorage.setItem(name, value); } catch (e) { /* private window */ } }
  };
  // The token is in the address that the server printed, once.
  const given = /^#token=([\w-]+)$/.exec(location.hash);
  if (given) {
    store.set("fathom-token", given[1]);
    history.replaceState(null, "", location.pathname + location.search);
  }
  const token = (given && given[1]) || store.get("fathom-token") || "";
  let shown = Number(script.dataset.version), heard = null, busy = false, lines = [];

  const GONE = "The server does not answer. Start it again: fathom book --serve";
  const target = experiment => { const at = experiment.lastIndexOf("/"); return experiment.slice(0, at) + ":" + experiment.slice(at + 1); };

  async function post(path, body) {
    const answer = await fetch("/_serve/" + path, {method: "POST", body: JSON.stringify(body),
                                                   headers: {"Content-Type": "application/json", "X-Fathom-Token": token}});
    return answer.ok ? "" : (await answer.json()).error;
  }

  function make(tag, properties, ...children) {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  }

  // The buttons of one run line. What is said is read out; the seconds, which change all the time, are not.
  class Line {
    constructor(box) {
      this.said = make("span", {className: "run-said"});
      this.said.setAttribute("role", "status");
      this.seconds = make("span", {className: "run-seconds"});
      this.seconds.setAttribute("aria-hidden", "true");
      this.quick = make("input", {type: "checkbox"});
      this.experiments = box.dataset.experiments.split(" ");
      this.buttons = this.experiments.map(experiment => make("button", {type: "button", className: "run-button",
          textContent: "Run " + target(experiment), onclick: () => this.run(experiment)}));
      this.cancel = make("button", {type: "button", className: "run-cancel", textContent: "Cancel", hidden: true,
                                    onclick: () => this.stop()});
      box.querySelector(".run-tools").append(
          ...this.buttons, make("label", {}, this.quick, " quick: one point"), this.cancel,
          make("p", {className: "news"}, this.said, " ", this.seconds));
      box.querySelector(".run-note").hidden = true;
    }

    async run(experiment) {
      if (busy) return;
      let refused = GONE;
      try { refused = await post("run", {experiment, quick: this.quick.checked}); } catch (e) { /* said below */ }
      if (refused) this.said.replaceChildren(refused);
      soon();
    }

    async stop() {
      try { await post("cancel", {}); } catch (e) { /* the next poll says that the server is gone */ }
      soon();
    }

    show(state) {
      const mine = this.experiments.includes(state.experiment);
      if (mine && state.saying !== heard) this.said.replaceChildren(state.said);
      for (const button of this.buttons) button.setAttribute("aria-disabled", String(state.phase !== "idle"));
      const stops = mine && state.phase === "run";
      if (!stops && document.activeElement === this.cancel) this.buttons[this.experiments.indexOf(state.experiment)]?.focus();
      this.cancel.hidden = !stops;
      this.seconds.textContent = stops ? "So far: " + Math.floor(state.seconds) + "\u202fs." : "";
    }
  }

  // The figures of the page as it is now on disk, in the places of those that are shown. Nothing else is touched.
  async function redraw() {
    const answer = await fetch(location.pathname, {cache: "no-store"});
    if (!answer.ok) return [];
    const page = new DOMParser().parseFromString(await answer.text(), "text/html"), changed = [];
    // What the reader looks at stays where it is, also when a figure above it grows.
    const top = e => e.getBoundingClientRect().top;
    const held = [...document.querySelectorAll("section > :not(section)")].find(e => e.getBoundingClientRect().bottom > 0);
    const before = held && top(held);
    for (const figure of document.querySelectorAll("figure.record-figure[id]")) {
      const fresh = page.getElementById(figure.id), old = figure.querySelector(".panels");
      const panels = fresh && fresh.querySelector(".panels");
      if (!panels || plain(old) === panels.innerHTML) continue;
      const open = new Set([...old.querySelectorAll(".panel")].filter(p => p.querySelector("details[open]")).map(p => p.dataset.machine));
      old.replaceChildren(...panels.cloneNode(true).children);
      for (const panel of old.children) if (open.has(panel.dataset.machine)) panel.querySelector("details").open = true;
      changed.push(figure);
    }
    if (held) scrollBy({top: top(held) - before, behavior: "instant"});
    return changed;
  }

  // A figure's HTML as it came, without what a reader opened.
  function plain(panels) {
    const copy = panels.cloneNode(true);
    for (const fold of copy.querySelectorAll("details[open]")) fold.open = false;
    return copy.innerHTML;
  }

  function link(figure) {
    const name = figure.querySelector(".caption-number");
    return make("button", {type: "button", className: "redrawn", textContent: name ? name.textContent.trim() : "the figure",
      onclick: () => {  // no link: the address keeps the state of widgets
        figure.tabIndex = -1;
        figure.focus({preventScroll: true});
        figure.scrollIntoView({block: "center"});
      }});
  }

  let timer, turn = 0, failures = 0;
  function soon(ms = 0) {
    ++turn;
    clearTimeout(timer);
    timer = setTimeout(poll, ms);
  }

  async function poll() {
    if (document.hidden) return;  // and again when it is seen
    const mine = turn;  // a button that is pressed meanwhile asks earlier
    const later = ms => { if (mine === turn) soon(ms); };
    try {
      const state = await (await fetch("/_serve/state", {cache: "no-store"})).json();
      failures = 0;
      busy = state.phase !== "idle";
      const built = state.version !== shown, changed = built ? await redraw() : [];
      shown = state.version;
      if (heard === null && !busy) heard = state.saying;  // said before this page was opened
      for (const line of lines) line.show(state);
      heard = state.saying;
      const line = lines.find(l => l.experiments.includes(state.experiment)) || lines[0];
      if (line && changed.length) {
        if (!line.experiments.includes(state.experiment)) line.said.replaceChildren(state.said);
        line.said.append(" Drawn again: ", ...changed.flatMap(figure => [link(figure), " "]));
      } else if (built && line && line.experiments.includes(state.experiment)) {
        line.said.append(" No figure of this page shows it.");
      }
      later(busy ? 1000 : 2000);
    } catch (e) {
      busy = false;
      if (++failures === 2) for (const line of lines) line.said.replaceChildren(GONE);
      later(5000);
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    lines = [...document.querySelectorAll(".run-line")].map(box => new Line(box));
    document.addEventListener("visibilitychange", () => soon());
    soon();
  });
})();
