// What all widgets share: the module, a form of controls, their state in the URL's fragment, and small helpers.
// The fragment is `#cache_simulator?sets=8&ways=2`; a second widget's state follows after a semicolon.

const instantiate = () => {
  const bytes = Uint8Array.from(atob(MODULE), c => c.charCodeAt(0));
  return new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports;
};

const SVG_TAGS = new Set(["svg", "g", "rect", "line", "path", "circle", "text", "polyline", "title"]);

// make("p", {class: "note"}, "text", child)
function make(tag, attributes, ...children) {
  const node = SVG_TAGS.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat());
  return node;
}

const percent = share => (100 * share).toFixed(1) + "\u202f%";
const grouped = n => String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");

function readFragment() {
  const all = {};
  for (const part of decodeURIComponent(location.hash.slice(1)).split(";")) {
    const [name, query] = part.split("?");
    if (query !== undefined) all[name] = query;
  }
  return all;
}

// A control: {key, label, value (default), options: [[value, label], ...]} is a select;
// {key, label, value, min, max} a number; with `range: true` a slider; {pattern} a text. `shown(state)` says when it matters.
class Widget extends HTMLElement {
  connectedCallback() {
    if (this.controls) return;
    if (!document.getElementById("fathom-widget-style"))
      document.head.append(make("style", {id: "fathom-widget-style"}, STYLE));
    this.classList.add("fathom-widget");
    const name = this.constructor.widget;
    const same = [...document.getElementsByTagName(this.tagName)];
    this.name  = name + (same.indexOf(this) > 0 ? "-" + (same.indexOf(this) + 1) : "");
    this.model = instantiate();
    this.controls = this.constructor.controls;
    this.fields = {};
    this.shown = {};
    this.form = make("div", {class: "controls", role: "group", "aria-label": "controls"}, this.controls.map(c => this.field(c)));
    this.view = make("div", {});
    this.append(this.form, this.view);
    this.load();
    addEventListener("hashchange", () => this.load());
    this.width = 0;
    new ResizeObserver(() => {
      if (this.clientWidth && this.clientWidth !== this.width) this.redraw();
    }).observe(this);
    if (readFragment()[this.name] !== undefined) requestAnimationFrame(() => this.scrollIntoView({block: "center"}));
  }

  field(control) {
    const about = {"aria-label": control.label, name: control.key};
    let input;
    if (control.options) {
      input = make("select", about, control.options.map(([value, label]) => make("option", {value}, String(label))));
    } else if (control.pattern) {
      input = make("input", {...about, pattern: control.pattern, autocomplete: "off"});
    } else {
      // Between limits so far apart that a step is lost in their rounding, Chromium's arrow keys do nothing.
      const limits = control.max > 1e15 ? {} : {min: control.min, max: control.max};
      input = make("input", {...about, ...limits, type: control.range ? "range" : "number", step: control.step || 1});
    }
    input.addEventListener("input", () => {
      if (!this.accepts(control, input.value)) return;
      this.state[control.key] = this.parsed(control, input.value);
      if (this.edited) this.edited(control.key);
      this.changed();
    });
    this.fields[control.key] = input;
    if (!control.range) return make("label", {}, control.label, input);
    const shown = make("output", {});
    this.shown[control.key] = shown;
    return make("label", {class: "wide"}, make("span", {}, control.label + ": ", shown), input);
  }

  accepts(control, text) {
    if (control.options) return control.options.some(([value]) => String(value) === String(text));
    if (control.pattern) return new RegExp(`^(?:${control.pattern})$`).test(text);
    const value = Number(text);
    return String(text).trim() !== "" && value >= control.min && value <= control.max && (control.step || Number.isInteger(value));
  }

  parsed(control, text) { return typeof control.value === "string" ? String(text) : Number(text); }

  // The page's default state, and over it what the fragment says; an unknown or impossible value is left out.
  load() {
    this.state = {};
    const said = [new URLSearchParams(this.dataset.state || ""), new URLSearchParams(readFragment()[this.name] || "")];
    for (const control of this.controls) {
      this.state[control.key] = control.value;
      for (const one of said)
        if (one.has(control.key) && this.accepts(control, one.get(control.key)))
          this.state[control.key] = this.parsed(control, one.get(control.key));
    }
    this.redraw();
  }

  set(key, value) {
    this.state[key] = value;
    this.changed();
  }

  changed() {
    const all = readFragment();
    all[this.name] = new URLSearchParams(this.state).toString();
    history.replaceState(null, "", "#" + Object.entries(all).map(([name, query]) => name + "?" + query).join(";"));
    this.redraw();
  }

  redraw() {
    for (const control of this.controls) {
      const field = this.fields[control.key];
      if (control.shown) field.parentNode.hidden = !control.shown(this.state);
      if (document.activeElement !== field || field.type === "range" || field.value === "") field.value = this.state[control.key];
    }
    this.width = this.clientWidth;
    this.draw(this.state, Math.max(240, Math.min(this.width, 760)));
    for (const [key, output] of Object.entries(this.shown)) output.textContent = this.fields[key].value;
  }
}

function define(constructor) {
  const tag = "fathom-" + constructor.widget.replaceAll("_", "-");
  if (!customElements.get(tag)) customElements.define(tag, constructor);
}
