// Predictions, exercises, and commands to copy. Everything is readable without this script; it keeps score on this machine only.
(function () {
  "use strict";
  var store = {
    get: function () { try { return JSON.parse(localStorage.getItem("algebra") || "{}"); } catch (e) { return {}; } },
    set: function (all) { try { localStorage.setItem("algebra", JSON.stringify(all)); } catch (e) { /* private window */ } }
  };
  function number(text) { return Number(String(text).trim().replace(/\u2212/g, "-").replace(",", ".")); }

  function factor(value, answer) { return value > 0 && answer > 0 ? Math.max(value / answer, answer / value) : Infinity; }

  function guess(form) {
    var name = form.dataset.guess, answer = Number(form.dataset.answer), input = form.querySelector("input");
    var out = form.querySelector("output"), fold = document.querySelector('details.answer[data-of="' + name + '"]');
    var veil = hideFigure(form);
    function show(value) {
      if (veil) veil.remove();
      var off = factor(value, answer);
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
      score();
    });
  }

  // The first figure behind a question that shows what is asked for waits until there is a prediction, or is asked for.
  function hideFigure(form) {
    var about = form.dataset.about.split(" ").filter(Boolean), places = document.querySelectorAll("form.guess, figure.record-figure");
    var figure = Array.prototype.slice.call(places, Array.prototype.indexOf.call(places, form) + 1).find(function (place) {
      return place.tagName === "FORM" || about.some(function (of) { return place.querySelector('[data-record^="' + of + '/"]'); });
    });
    if (!figure || figure.tagName === "FORM" || figure.querySelector(".veil")) return null;
    var button = document.createElement("button");
    button.className = "veil";
    button.textContent = "A figure of the answer. Show it without a prediction";
    button.addEventListener("click", function () { button.remove(); });
    figure.prepend(button);
    return button;
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
    var forms = document.querySelectorAll("form.answer-form"), guesses = document.querySelectorAll("form.guess"), all = store.get();
    if (!forms.length) return;
    function count(list, holds) { return Array.prototype.filter.call(list, holds).length; }
    var solved = count(forms, function (form) { return all[form.dataset.exercise] === true; });
    var made = count(guesses, function (form) { return all[form.dataset.guess] !== undefined; });
    var near = count(guesses, function (form) { return factor(all[form.dataset.guess], Number(form.dataset.answer)) <= 2; });
    var line = document.querySelector(".score");
    if (!line) {
      line = document.createElement("p");
      line.className = "score";
      var title = document.querySelector("h1");
      title.parentNode.insertBefore(line, title.nextSibling);
    }
    line.textContent = solved + " of " + forms.length + " exercises of this chapter solved, " + made + " of " + guesses.length +
      " predictions made and " + near + " within a factor of two, on this machine.";
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
