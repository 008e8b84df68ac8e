// Predictions, exercises, and commands to copy. Everything is readable without this script; it keeps score on this machine only.
(function () {
  "use strict";
  var store = {
    get: function () { try { return JSON.parse(localStorage.getItem("algebra") || "{}"); } catch (e) { return {}; } },
    set: function (all) { try { localStorage.setItem("algebra", JSON.stringify(all)); } catch (e) { /* private window */ } }
  };
  function number(text) { return Number(String(text).trim().replace(/\u2212/g, "-").replace(",", ".")); }

  function guess(form) {
    var name = form.dataset.guess, answer = Number(form.dataset.answer), input = form.querySelector("input");
    var out = form.querySelector("output"), fold = document.querySelector('details.answer[data-of="' + name + '"]');
    function show(value) {
      var off = value > 0 && answer > 0 ? Math.max(value / answer, answer / value) : Infinity;
      out.textContent = off === Infinity ? "Of another sign or zero." : "Off by a factor of " + off.toPrecision(2) + ".";
      fold.open = true;
    }
    var kept = store.get()[name];
    if (kept !== undefined) { input.value = kept; show(kept); }
    form.addEventListener("submit", function (event) {
      event.preventDefault();
      var value = number(input.value);
      if (!input.value.trim() || isNaN(value)) { out.textContent = "Type a number first."; return; }
      var all = store.get(); all[name] = value; store.set(all);
      show(value);
    });
  }

  function exercise(form) {
    var key = JSON.parse(form.dataset.key), out = form.querySelector("output"), tolerance = Number(form.dataset.tolerance);
    form.addEventListener("submit", function (event) {
      event.preventDefault();
      var right;
      if (form.dataset.kind === "choice") {
        var chosen = form.querySelector("input:checked");
        if (!chosen) { out.textContent = "Choose one first."; return; }
        right = chosen.value === key[0];
      } else {
        right = Array.prototype.every.call(form.querySelectorAll("input"), function (input, i) {
          var value = number(input.value);
          return input.value.trim() !== "" && Math.abs(value - key[i]) <= tolerance * Math.max(Math.abs(key[i]), 1e-12);
        });
      }
      out.className = right ? "right" : "wrong";
      out.textContent = right ? "Right." : "Not yet.";
      if (right) { var all = store.get(); all[form.dataset.exercise] = true; store.set(all); score(); }
    });
  }

  function copyable(line) {
    var command = line.querySelector("pre"), button = document.createElement("button"), out = document.createElement("output");
    var tools = document.createElement("div");
    tools.className = "run-tools";
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy the command");
    function selected() {  // where a page may not write to the clipboard
      var range = document.createRange();
      range.selectNodeContents(command);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      out.textContent = document.execCommand("copy") ? "Copied." : "It is selected; copy it now.";
    }
    button.addEventListener("click", function () {
      if (!navigator.clipboard) { selected(); return; }
      navigator.clipboard.writeText(command.textContent.trim()).then(function () { out.textContent = "Copied."; }, selected);
    });
    tools.append(button, out);
    command.closest(".run").after(tools);
  }

  function score() {
    var forms = document.querySelectorAll("form.answer-form"), all = store.get(), done = 0;
    if (!forms.length) return;
    forms.forEach(function (form) { if (all[form.dataset.exercise] === true) done++; });
    var line = document.querySelector(".score");
    if (!line) {
      line = document.createElement("p");
      line.className = "score";
      var title = document.querySelector("h1");
      title.parentNode.insertBefore(line, title.nextSibling);
    }
    line.textContent = done + " of " + forms.length + " exercises of this chapter solved on this machine.";
  }

  document.addEventListener("DOMContentLoaded", function () {
    document.querySelectorAll("form.guess").forEach(guess);
    document.querySelectorAll("form.answer-form").forEach(exercise);
    document.querySelectorAll(".run-line").forEach(copyable);
    score();
  });

  // On paper nothing can be unfolded.
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details:not([open])").forEach(function (folded) { folded.open = folded.wasFolded = true; });
  });
  window.addEventListener("afterprint", function () {
    document.querySelectorAll("details").forEach(function (unfolded) { if (unfolded.wasFolded) unfolded.open = unfolded.wasFolded = false; });
  });
})();
