#include "report/page_frame.h"

#include <fmt/format.h>

#include <cctype>

#include "lab/quantity.h"
#include "report/svg.h"

namespace fathom::report {

using namespace lab;

namespace {

constexpr std::string_view kPageStyle = R"css(
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 var(--sans);
  font-variant-numeric: tabular-nums; }
main, header, footer { max-width: 1212px; margin: 0 auto; padding: 0 16px; }
header { padding-top: 28px; }
footer { padding: 24px 16px 40px; color: var(--muted); font-size: 13px; }
h1 { font-size: 25px; line-height: 1.25; font-weight: 600; margin: 0 0 10px; letter-spacing: -.01em; overflow-wrap: anywhere; }
h2 { font-size: 19px; font-weight: 600; margin: 44px 0 10px; padding-top: 12px; border-top: 2px solid var(--ink); }
p { margin: 6px 0; max-width: 78ch; overflow-wrap: anywhere; }
a { color: var(--accent); text-decoration-thickness: 1px; text-underline-offset: 2px; }
a:focus-visible, [tabindex]:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.mono { font-family: var(--mono); font-size: .93em; }
.small { font-size: 13px; color: var(--muted); }
.lead { font-size: 15px; margin: 0 0 4px; }
.facts { display: flex; flex-wrap: wrap; gap: 2px 22px; margin: 0 0 8px; font-size: 13px; }
.facts div { display: flex; gap: 6px; max-width: 100%; }
.facts dt { color: var(--muted); white-space: nowrap; }
.facts dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
.tally { display: flex; flex-wrap: wrap; gap: 6px; list-style: none; margin: 14px 0; padding: 0; }
.tally li { border: 1px solid var(--rule); border-radius: 4px; padding: 3px 8px; background: var(--tint);
  font-size: 13px; white-space: nowrap; }
.tally b { font-size: 17px; font-weight: 600; margin: 0 3px; }
.tally a { color: inherit; }
.zero { color: var(--muted); }
.good { color: var(--good); } .bad { color: var(--bad); } .doubt { color: var(--doubt); } .void { color: var(--void); }
.verdict { font-size: 12px; font-weight: 600; white-space: nowrap; letter-spacing: .02em; }
.flag { display: inline-block; font: 600 11px/1.5 var(--sans); border: 1px solid currentColor; border-radius: 3px;
  padding: 0 5px; margin-left: 6px; vertical-align: 1px; letter-spacing: .02em; white-space: nowrap; }
.note { border-left: 3px solid currentColor; padding: 4px 0 4px 12px; margin: 10px 0; }
.note * { color: var(--ink); }
.scroll { overflow-x: auto; margin: 6px 0 10px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; line-height: 1.4; }
caption { text-align: left; color: var(--muted); font-size: 13px; padding: 0 0 6px; }
th, td { text-align: left; vertical-align: top; padding: 6px 14px 6px 0; border-bottom: 1px solid var(--rule); }
thead th { font-weight: 500; color: var(--muted); border-bottom: 1px solid var(--muted); vertical-align: bottom; }
tbody th { font-weight: 400; }
th:last-child, td:last-child { padding-right: 0; }
.num { text-align: right; white-space: nowrap; }
.sub { display: block; color: var(--muted); font-size: 12px; white-space: normal; }
.num .sub { white-space: nowrap; }
.id { font: 600 13px/1.4 var(--mono); overflow-wrap: anywhere; }
.meter { display: inline-block; width: 64px; height: 7px; margin-right: 7px; background: var(--faint);
  border: 1px solid var(--rule); vertical-align: 1px; text-align: left; }
.meter i { display: block; height: 100%; background: var(--accent); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(380px, 100%), 1fr)); gap: 16px 20px;
  align-items: start; margin: 10px 0; }
figure { margin: 0; min-width: 0; }
figcaption { font-size: 13px; color: var(--muted); margin: 0 0 6px; }
.chart { display: block; max-width: 100%; height: auto; }
.wide .chart { min-width: 640px; }
.environment th { width: 34%; font: 12.5px/1.4 var(--mono); color: var(--muted); }
.environment td { overflow-wrap: anywhere; }
.environment th { overflow-wrap: anywhere; }
.line { display: block; }
.logbook .tally { margin: 0; }
.logbook th:first-child { min-width: 150px; }
.logbook td.broad { width: 34%; }
.logbook tbody td { vertical-align: baseline; }
.logbook .tally li { padding: 0 6px; font-size: 12px; }
.logbook .tally b { font-size: 13px; }
.logbook .mono { white-space: nowrap; }
.logbook .best .mono { white-space: normal; }
.logbook .zero { display: none; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: 12.5px/1.45 var(--mono); }
@media screen and (max-width: 720px) {
  header { padding-top: 18px; }
  h1 { font-size: 21px; }
  .tally li { padding: 2px 8px; }
  .stack, .stack tbody, .stack caption { display: block; }
  .stack thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .stack tr { display: flex; flex-wrap: wrap; gap: 0 14px; padding: 3px 0; }
  .stack tbody { padding: 8px 0; }
  .stack tbody th { flex: 1 0 100%; width: auto; padding: 0; border: 0; }
  .stack td { padding: 1px 0; text-align: left; border: 0; }
  .stack.rows tr { border-bottom: 1px solid var(--rule); padding: 6px 0; }
  .stack.logbook td.broad { width: 100%; }
  .stack td .sub { display: inline; margin-left: 4px; }
  .stack td[data-name]::before { content: attr(data-name) " "; color: var(--muted); }
  .stack .empty { display: none; }
}
@media print {
  @page { margin: 14mm; }
  body { font-size: 10.5pt; }
  main, header, footer { max-width: none; padding: 0; }
  a { color: inherit; text-decoration: none; }
  .scroll { overflow: visible; }
  .wide .chart { min-width: 0; }
  h2, h4, caption, figcaption { break-after: avoid; }
  tr, figure, .note { break-inside: avoid; }
  .meter, .tally li { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
)css";

void count(std::string& out, int number, std::string_view style, std::string_view sign, std::string_view word,
           std::string_view href = "") {
  const std::string_view shown_style = number == 0 ? "zero" : style;
  std::string words                  = escape(word);
  if (!href.empty() && number > 0) words = fmt::format("<a href=\"{}\">{}</a>", escape(href), words);
  out += fmt::format("<li class=\"{}\">{}<b>{}</b> {}</li>\n", shown_style, sign, number, words);
}

}  // namespace

std::string page_head(std::string_view title, std::string_view more_style) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" "
      "href=\"data:,\">\n<title>{}</title>\n<style>{}{}{}</style>\n</head>\n<body>\n",
      escape(title), chart_style(), kPageStyle, more_style);
}

std::string page_foot() { return "</body>\n</html>\n"; }

std::string tally_html(const Tally& tally, std::string_view report) {
  const std::string failed = std::string(report) + "#failed", skipped = std::string(report) + "#skipped";

  std::string out = "<ul class=\"tally\">\n";
  count(out, tally.faster, "good", "▲", "faster");
  count(out, tally.slower, "bad", "▼", "slower");
  count(out, tally.same, "", "=", "same");
  count(out, tally.inconclusive, "doubt", "?", "inconclusive");
  if (tally.advisory > 0) count(out, tally.advisory, "doubt", "⚠", "of these advisory");
  count(out, tally.invalid, "void", "✕", "invalid", failed);
  count(out, tally.failed, "bad", "✕", "failed", failed);
  count(out, tally.skipped, "", "–", "skipped", skipped);
  count(out, tally.predictions_held, "good", "✓",
        tally.predictions_held == 1 ? "prediction held" : "predictions held");
  count(out, tally.predictions_failed, "bad", "✗",
        tally.predictions_failed == 1 ? "prediction failed" : "predictions failed");
  return out + "</ul>\n";
}

std::string verdict_html(const VariantRecord& variant, bool advisory) {
  std::string out;
  if (is_invalid(variant)) return "<span class=\"verdict void\">✕ INVALID</span>";
  if (!variant.verdict) return std::string(kAbsent);
  if (*variant.verdict == "FASTER")
    out = "<span class=\"verdict good\">▲ FASTER</span>";
  else if (*variant.verdict == "SLOWER")
    out = "<span class=\"verdict bad\">▼ SLOWER</span>";
  else if (*variant.verdict == "SAME")
    out = "<span class=\"verdict\">= SAME</span>";
  else
    out = fmt::format("<span class=\"verdict doubt\">? {}</span>", escape(*variant.verdict));
  if (advisory) out += " <span class=\"flag doubt\">advisory</span>";
  return out;
}

std::string scroll_box(std::string_view name, std::string_view table) {
  return fmt::format("<div class=\"scroll\" role=\"region\" aria-label=\"{}\" tabindex=\"0\">\n{}</div>\n",
                     escape(name), table);
}

std::string date_text(std::string_view iso) {
  // Anything but "YYYY-MM-DDTHH:MM..." is shown as it is.
  if (iso.size() < 16 || iso[4] != '-' || iso[10] != 'T' || !std::isdigit(static_cast<unsigned char>(iso[0])))
    return std::string(iso);
  return fmt::format("{} {}{}", iso.substr(0, 10), iso.substr(11, 5), iso.back() == 'Z' ? " UTC" : "");
}

}  // namespace fathom::report
