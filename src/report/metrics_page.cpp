#include "report/metrics_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/quantity.h"
#include "report/page_frame.h"

namespace fathom::report {

using lab::escape;

namespace {

constexpr std::string_view kMetricsStyle = R"css(
.metric { table-layout: fixed; max-width: 900px; }
.metric th { width: 27%; overflow-wrap: anywhere; }
.metric td.bar { width: 43%; }
.metric td.bar div { height: .8em; margin-top: .3em; background: var(--accent); print-color-adjust: exact; }
.metric tr.baseline td.bar div { background: var(--muted); }
/* On a phone the bar has a line of its own, under the name and the numbers. */
@media screen and (max-width: 500px) {
  .metric, .metric tbody, .metric caption { display: block; }
  .metric tr { display: grid; grid-template: "name value change" "bar bar bar" / minmax(0, 1fr) auto 76px;
    gap: 0 10px; padding: 5px 0; border-bottom: 1px solid var(--rule); }
  .metric th, .metric td { width: auto; padding: 0; border: 0; }
  .metric td.bar { width: auto; grid-area: bar; }
}
)css";

std::string value_text(const MetricBars& chart, double value) {
  if (!std::isfinite(value)) return std::string(lab::kAbsent);
  if (chart.metric.ends_with("_ns")) return lab::time_text(value);
  if (chart.metric.ends_with("_bytes")) return lab::digits_text(value * 1e-6) + " MB";
  return lab::digits_text(value);
}

std::string difference_text(const MetricBars::Bar& bar, const MetricBars::Bar* baseline) {
  if (bar.baseline) return "baseline";
  if (!baseline || !(baseline->value > 0) || !std::isfinite(bar.value)) return std::string(lab::kAbsent);
  return fmt::format("{:+.1f} %", 100 * (bar.value / baseline->value - 1));
}

std::string metric_table(const MetricBars& chart) {
  const auto found =
      std::find_if(chart.bars.begin(), chart.bars.end(), [](const auto& bar) { return bar.baseline; });
  const MetricBars::Bar* baseline = found == chart.bars.end() ? nullptr : &*found;
  double largest                  = 0;
  for (const auto& bar : chart.bars)
    if (std::isfinite(bar.value)) largest = std::max(largest, bar.value);
  std::string out = fmt::format(
      "<table class=\"metric\">\n<caption><span class=\"mono\">{}</span>, {} is better</caption>\n",
      escape(chart.metric), chart.higher_is_better ? "higher" : "lower");
  for (const auto& bar : chart.bars) {
    const double share = largest > 0 && bar.value > 0 && std::isfinite(bar.value) ? bar.value / largest : 0;
    out += fmt::format(
        "<tr{}><th scope=\"row\">{}</th><td class=\"bar\"><div style=\"width: {:.1f}%\"></div></td><td "
        "class=\"num\">{}</td><td class=\"num\">{}</td></tr>\n",
        bar.baseline ? " class=\"baseline\"" : "", escape(bar.variant), 100 * share,
        value_text(chart, bar.value), difference_text(bar, baseline));
  }
  return out + "</table>\n";
}

}  // namespace

std::string metrics_page(std::string_view title, std::span<const MetricBars> charts) {
  std::string page = page_head(title, kMetricsStyle) +
                     fmt::format("<header>\n<h1>{}</h1>\n</header>\n<main>\n", escape(title));
  const MetricBars* before = nullptr;
  for (const MetricBars& chart : charts) {
    if (!before || before->experiment != chart.experiment || before->at != chart.at)
      page += fmt::format("<h2>{}{}{}</h2>\n", escape(chart.experiment), chart.at.empty() ? "" : " at ",
                          escape(chart.at));
    page += scroll_box(chart.metric, metric_table(chart));
    before = &chart;
  }
  return page + "</main>\n" + page_foot();
}

}  // namespace fathom::report
