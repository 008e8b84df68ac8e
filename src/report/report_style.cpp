#include "report/report_style.h"

namespace fathom::report {

std::string_view report_style() {
  return R"css(
main, header, footer { max-width: 1368px; }
header { padding-top: 14px; }
header h1 { margin: 0 0 2px; }
header .facts { margin: 0; }
[id] { scroll-margin-top: 42px; }
h2 { margin: 34px 0 8px; }
code { font: .93em var(--mono); }
kbd { font: 11px var(--mono); border: 1px solid var(--rule); border-radius: 3px; padding: 0 4px; }
.contents { position: sticky; top: 0; z-index: 9; display: flex; gap: 18px; background: var(--paper);
  border-bottom: 1px solid var(--rule); padding: 6px max(16px, calc((100% - 1336px) / 2)); font-size: 13px; }
.contents a { text-decoration: none; white-space: nowrap; }
.headline { display: grid; grid-template-columns: repeat(6, minmax(0, auto)); gap: 0; margin: 12px 0 14px;
  border: 1px solid var(--rule); border-radius: 6px; background: var(--tint); }
.headline div { padding: 8px 14px; border-left: 1px solid var(--rule); }
.headline div:first-child { border-left: 0; }
.headline dd { margin: 0; font-size: 20px; line-height: 1.3; font-weight: 600; white-space: nowrap; }
.headline dd a { color: var(--bad); text-decoration: none; }
.headline dt { font-size: 12px; line-height: 1.35; color: var(--muted); }
.headline div { display: flex; flex-direction: column-reverse; justify-content: flex-end; }
.headline .tallies { font-size: 15px; line-height: 26px; }
.headline .tallies span { display: inline-block; margin-right: 9px; }
.first { display: grid; grid-template-columns: minmax(0, 13fr) minmax(0, 10fr); gap: 8px 36px; }
.first h2 { font-size: 15px; margin: 0 0 6px; padding: 0; border: 0; }
.plot { padding: 4px 10px 0 52px; }
.plot .area { position: relative; height: 372px; border-left: 1px solid var(--muted); border-bottom: 1px solid var(--muted); }
.plot i, .plot small, .plot .mark, .plot .badge { position: absolute; }
.plot .gx { top: 0; bottom: 0; border-left: 1px solid var(--faint); }
.plot .gx.one { border-left: 1px dashed var(--muted); }
.plot .gy { left: 0; right: 0; border-top: 1px solid var(--faint); }
.plot .shelf { left: 0; right: 0; bottom: 0; background: var(--tint); border-top: 1px solid var(--rule); }
.plot small { font-size: 11px; line-height: 14px; color: var(--muted); white-space: nowrap; }
.plot .tx { top: calc(100% + 4px); transform: translateX(-50%); }
.plot .ty { right: calc(100% + 7px); transform: translateY(-50%); }
.plot .xname { margin: 22px 0 0; font-size: 12px; color: var(--muted); text-align: center; max-width: none; }
.plot .mark { width: 9px; height: 9px; margin: -4.5px 0 0 -4.5px; border-radius: 50%; background: currentColor; }
.plot .mark::after { content: ""; position: absolute; inset: -6px; }
.plot .mark.hollow { background: var(--paper); border: 2px solid currentColor; }
.plot .mark:hover { outline: 2px solid currentColor; outline-offset: 1px; }
.plot .reach { height: 0; border-top: 2px solid currentColor; margin-top: -1px; opacity: .55; }
.plot .badge { width: 17px; height: 17px; transform: translate(-50%, -50%); border-radius: 50%; background: var(--ink);
  color: var(--paper); font: 600 11px/17px var(--sans); text-align: center; pointer-events: none; }
.same { color: var(--ink); }
.lessons { list-style: none; margin: 0 0 14px; padding: 0; counter-reset: lesson; }
.lessons li { counter-increment: lesson; position: relative; padding: 0 0 7px 27px; font-size: 14px; line-height: 1.4; }
.lessons li::before { content: counter(lesson); position: absolute; left: 0; top: 2px; width: 17px; height: 17px;
  border-radius: 50%; background: var(--ink); color: var(--paper); font: 600 11px/17px var(--sans); text-align: center; }
.lessons small { font-size: 12px; color: var(--muted); }
.lessons a, .doubts a { text-decoration: none; }
.lessons a:hover, .doubts a:hover { text-decoration: underline; }
.lessons a { font-family: var(--mono); font-size: .93em; font-weight: 600; }
.lessons code { overflow-wrap: anywhere; }
.doubts { list-style: none; margin: 0; padding: 0; font-size: 13px; line-height: 1.4; }
.doubts li { padding: 0 0 4px; overflow-wrap: anywhere; }
.doubts span { color: var(--muted); }
.doubts a { font-family: var(--mono); font-size: 12px; }
.toolbar { display: flex; flex-wrap: wrap; align-items: center; gap: 8px; margin: 8px 0; font-size: 13px; }
.toolbar[hidden] { display: none; }
.toolbar input, .toolbar select, .toolbar button, .head button { font: inherit; color: inherit; background: var(--paper);
  border: 1px solid var(--rule); border-radius: 4px; padding: 4px 8px; min-width: 0; max-width: 100%; }
.toolbar input { width: 200px; }
.toolbar select { width: 160px; }
.toolbar output { color: var(--muted); }
.toolbar .keys { color: var(--muted); margin-left: auto; }
.toolbar :focus-visible, summary:focus-visible, .head button:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
.results { font-size: 13px; }
.broad { max-width: none; }
.head, .row > summary { display: grid; gap: 0 16px; align-items: center;
  grid-template-columns: minmax(0, 24fr) minmax(0, 15fr) 150px minmax(0, 19fr) 122px 120px 62px minmax(104px, 10fr); }
.head { padding: 0 8px 4px 22px; color: var(--muted); border-bottom: 1px solid var(--muted); align-items: end; }
.head button { border: 0; padding: 0; color: var(--muted); cursor: pointer; text-align: inherit; }
.head button[aria-sort]::after { content: " ↓"; }
.head button[aria-sort="ascending"]::after { content: " ↑"; }
.row { border-bottom: 1px solid var(--rule); }
.row[hidden] { display: none; }
.row > summary { position: relative; padding: 5px 8px 5px 22px; min-height: 30px; cursor: pointer; list-style: none; line-height: 1.4; }
.row > summary::-webkit-details-marker { display: none; }
.row > summary::before { content: "▸"; position: absolute; left: 6px; top: 5px; color: var(--muted); }
.row[open] > summary::before { content: "▾"; }
.row > summary:hover, .row[open] > summary { background: var(--tint); }
.row small { color: var(--muted); font-size: 12px; margin-left: 8px; }
.c-name, .c-best { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.c-best { font-family: var(--mono); font-size: 12.5px; }
.head .c-best { font: inherit; }
.c-gain, .c-share, .c-held { text-align: right; white-space: nowrap; }
.c-gain small { margin-left: 6px; }
.c-why { grid-column: 2 / 6; color: var(--muted); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.c-bar { padding-right: 12px; }
.c-flags { grid-column: 8; }
.c-flags .flag { margin: 0 5px 0 0; }
.iv { position: relative; display: block; height: 14px; }
.iv i { position: absolute; }
.iv .unit { top: -3px; bottom: -3px; border-left: 1px dashed var(--muted); }
.iv .span { top: 6px; min-width: 2px; height: 2px; background: currentColor; }
.iv .dot { top: 3px; width: 8px; height: 8px; margin-left: -4px; border-radius: 50%; background: currentColor; }
.iv .dot.yardstick { border-radius: 0; transform: rotate(45deg) scale(.85); background: var(--paper); border: 2px solid currentColor; }
.iv .dot.void { border-radius: 0; background: none; border: 2px solid currentColor; }
.iv.ticks small { position: absolute; top: 0; transform: translateX(-50%); margin: 0; font-size: 11px; line-height: 14px; color: var(--muted);
  font-weight: 400; white-space: nowrap; }
.panel { padding: 8px 8px 18px 22px; font-size: 14px; }
.panel h4 { font: 600 14px/1.4 var(--sans); margin: 14px 0 4px; overflow-wrap: anywhere; }
.panel .lead { font-size: 16px; }
.parts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 40px; align-items: start; }
.part { min-width: 0; border-top: 1px solid var(--rule); margin-top: 12px; }
.ladder { table-layout: fixed; min-width: 960px; }
.ladder th:nth-child(1) { width: 22%; } .ladder th:nth-child(2) { width: 11%; }
.ladder th:nth-child(3) { width: 9%; } .ladder th:nth-child(4) { width: 16%; }
.ladder th:nth-child(5) { width: 10%; } .ladder th:nth-child(6) { width: 11%; }
.ladder th:nth-child(7) { width: 13%; } .ladder th:nth-child(8) { width: 8%; }
.ladder td.bar { padding-top: 8px; }
.ladder .num .sub { white-space: normal; }
.panel .charts { grid-template-columns: minmax(0, 420px) minmax(0, 1fr); }
.metrics { width: auto; } .metrics td, .metrics th { padding-top: 3px; padding-bottom: 3px; } .metrics caption { color: var(--ink); }
.change { width: auto; } .change td, .change th { padding: 3px 14px 3px 0; white-space: nowrap; } .change .sub { white-space: normal; }
.point > summary, .diff > summary, .skip > summary { cursor: pointer; padding: 4px 0; overflow-wrap: anywhere; }
.point { border-top: 1px solid var(--rule); }
.diff pre { margin: 2px 0 8px; padding: 8px; background: var(--tint); font-size: 12px; line-height: 1.4; white-space: pre; }
.diff ins { color: var(--good); text-decoration: none; } .diff del { color: var(--bad); text-decoration: none; }
.diff i { color: var(--muted); font-style: normal; }
.prose { font-size: 13.5px; }
.prose h6 { font: 600 13.5px/1.4 var(--sans); margin: 10px 0 2px; }
.prose ul, .prose ol { margin: 6px 0; padding-left: 20px; }
.prose li { overflow-wrap: anywhere; }
.skip { font-size: 13px; border-bottom: 1px solid var(--rule); }
.skip span { color: var(--muted); }
.ids { columns: 3 260px; margin: 4px 0 10px; padding-left: 20px; overflow-wrap: anywhere; }
@media (max-width: 1000px) { .parts, .panel .charts { grid-template-columns: minmax(0, 1fr); } }
@media screen and (max-width: 1000px) {
  .first { grid-template-columns: minmax(0, 1fr); }
  .headline { grid-template-columns: repeat(3, minmax(0, 1fr)); }
  .headline div { padding: 4px 8px; }
  .headline div:nth-child(3n + 1) { border-left: 0; }
  .headline div:nth-child(n + 4) { border-top: 1px solid var(--rule); }
}
@media screen and (max-width: 720px) {
  header { padding-top: 8px; }
  h1 { font-size: 18px; }
  header .facts { font-size: 12px; gap: 0 12px; line-height: 1.4; }
  header .facts dt { display: none; }
  .contents { gap: 12px; font-size: 12px; padding: 5px 12px; }
  .contents a:first-child { display: none; }
  main, header { padding: 0 12px; }
  .headline { margin: 8px 0; }
  .headline dd { font-size: 16px; }
  .headline dt { font-size: 11px; line-height: 1.25; }
  .headline .tallies { font-size: 12px; line-height: 16px; white-space: normal; }
  .headline .tallies span { margin-right: 6px; }
  .first h2 { font-size: 13.5px; margin: 0 0 3px; }
  .plot { padding: 2px 6px 0 46px; }
  .plot .area { height: 190px; }
  .plot .mark { width: 7px; height: 7px; margin: -3.5px 0 0 -3.5px; }
  .plot .xname { font-size: 11px; margin-top: 19px; }
  .lessons { margin-bottom: 8px; }
  .lessons li { font-size: 12.5px; line-height: 1.35; padding-bottom: 4px; padding-left: 24px; }
  .lessons small { display: none; }
  .toolbar { gap: 6px; }
  .toolbar input, .toolbar select { flex: 1 1 30%; width: auto; }
  .toolbar .keys { display: none; }
  .head { display: flex; gap: 14px; padding-left: 0; }
  .head > :not([data-sort]) { display: none; }
  .row > summary { grid-template: "name name gain share" "best bar bar verdict" / 92px minmax(0, 1fr) auto auto;
    gap: 2px 10px; padding-left: 16px; padding-right: 4px; }
  .row > summary::before { left: 0; }
  .c-name { grid-area: name; } .c-best { grid-area: best; font-size: 12px; } .c-gain { grid-area: gain; } .c-bar { grid-area: bar; }
  .c-verdict { grid-area: verdict; text-align: right; } .c-share { grid-area: share; min-width: 52px; }
  .c-flags { grid-area: bar; } .c-flags:empty, summary:has(.c-flags:not(:empty)) .c-bar, summary:has(.c-why) .c-flags { display: none; } .c-held { display: none; }
  .c-why { grid-area: best-start / best-start / best-end / verdict-end; white-space: normal; }
  .row > summary .id { font-size: 12px; }
  .row > summary small, .row > summary .meter { display: none; }
  .panel { padding-left: 0; padding-right: 0; }
  .ladder { min-width: 0; table-layout: auto; }
  .ladder .iv { width: 100%; }
  .ladder.stack td.bar { flex: 1 0 100%; padding: 4px 0; }
  .ladder.stack td .sub { display: inline; }
  .ladder.stack tr { border-bottom: 1px solid var(--rule); padding: 8px 0; }
}
@media print {
  .contents, .toolbar, .row > summary::before { display: none; }
  .first { grid-template-columns: 3fr 2fr; }
  .headline dd { font-size: 12pt; } .headline dt { font-size: 8pt; } .headline .tallies { font-size: 9pt; }
  .headline div { padding: 4px 6px; }
  .plot .area { height: 240px; }
  .head, .row > summary { grid-template-columns: minmax(0, 22fr) minmax(0, 14fr) 56px minmax(0, 15fr) 104px 50px 54px minmax(0, 6fr); gap: 0 8px; font-size: 8pt; }
  .head span { white-space: normal; } .head .iv.ticks { visibility: hidden; } .verdict { font-size: 8pt; }
  .row > summary small, .row > summary .meter { display: none; }
  .row { break-inside: auto; } .row > summary { break-inside: avoid; min-height: 0; padding: 2px 0; }
  .panel { padding-left: 0; }
  .ladder { min-width: 0; font-size: 8.5pt; table-layout: auto; }
  .ladder .sub { font-size: 7.5pt; } .ladder .meter { display: none; }
  .parts { display: block; }
  .diff pre { white-space: pre-wrap; }
  .iv *, .plot *, .lessons li::before { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
)css";
}

std::string_view report_script() {
  return R"js(
(() => {
  'use strict';
  const list = document.querySelector('.results > .rows');
  if (!list) return;
  const rows = [...list.children], form = document.querySelector('.toolbar');
  const none = document.querySelector('.no-match'), total = rows.length;
  const summary = row => row.firstElementChild;
  const visible = () => [...list.children].filter(row => !row.hidden);

  const filter = () => {
    const words = form.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (name, row) => !form[name].value || row.dataset[name].split('|').includes(form[name].value);
    let shown = 0;
    for (const row of rows) {
      row.hidden = !(words.every(word => row.dataset.text.includes(word)) &&
        fits('chapter', row) && fits('verdict', row) && fits('technique', row));
      shown += row.hidden ? 0 : 1;
    }
    form.querySelector('output').textContent = shown === total ? total + ' experiments' : shown + ' of ' + total;
    none.hidden = shown > 0;
  };
  form.hidden = false;
  form.addEventListener('input', filter);
  form.addEventListener('submit', event => event.preventDefault());
  form.open.addEventListener('click', () => {
    const some = visible().some(row => !row.open);
    for (const row of visible()) row.open = some;
    form.open.textContent = some ? 'Close all' : 'Open all';
  });

  // Rows without a value come last in either direction.
  const keys = {
    id: row => row.dataset.id,
    gain: row => Number(row.dataset.gain),
    share: row => Number(row.dataset.share),
    verdict: row => row.querySelector('.c-verdict')?.textContent,
  };
  for (const cell of document.querySelectorAll('.head [data-sort]')) {
    const button = document.createElement('button');
    button.type = 'button';
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener('click', () => {
      const name = cell.dataset.sort, text = name === 'id' || name === 'verdict';
      const now = button.getAttribute('aria-sort');
      const up = now ? now === 'descending' : text;
      for (const other of document.querySelectorAll('.head button')) other.removeAttribute('aria-sort');
      button.setAttribute('aria-sort', up ? 'ascending' : 'descending');
      const lacks = key => key === undefined || Number.isNaN(key);
      const order = (a, b) => text ? a.localeCompare(b) : a - b;
      const sorted = rows.map(row => [keys[name](row), row]).sort(([a], [b]) =>
        lacks(a) || lacks(b) ? lacks(a) - lacks(b) : up ? order(a, b) : order(b, a));
      list.append(...sorted.map(([, row]) => row));
    });
  }

  const move = step => {
    const shown = visible(), at = shown.indexOf(document.activeElement?.closest?.('.row'));
    const next = shown[at < 0 ? (step > 0 ? 0 : shown.length - 1) : Math.min(shown.length - 1, Math.max(0, at + step))];
    if (next) summary(next).focus();
  };
  document.addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(INPUT|SELECT)$/.test(event.target.tagName);
    if (event.key === 'Escape' && form.contains(event.target)) {
      form.reset();
      filter();
      event.target.blur();
    }
    if (typing) return;
    const inRow = event.target.parentElement?.classList.contains('row');
    if (event.key === '/') form.text.focus();
    else if (event.key === 'j' || (inRow && event.key === 'ArrowDown')) move(1);
    else if (event.key === 'k' || (inRow && event.key === 'ArrowUp')) move(-1);
    else return;
    event.preventDefault();
  });

  // A link to a row opens it, and shows it even if a filter had hidden it.
  const openTarget = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target || !target.classList.contains('row')) return;
    if (target.hidden) { form.reset(); filter(); }
    target.open = true;
    target.scrollIntoView();
    summary(target).focus({ preventScroll: true });
  };
  addEventListener('hashchange', openTarget);
  document.addEventListener('click', event => {
    const link = event.target.closest?.('a[href^="#e"]');
    if (link && link.getAttribute('href') === location.hash) openTarget();
  });
  openTarget();
})();
)js";
}

}  // namespace fathom::report
