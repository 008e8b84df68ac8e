#include "report/metrics_panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "lab/metric_text.h"
#include "lab/quantity.h"
#include "report/page_frame.h"
#include "report/svg.h"

namespace fathom::report {

using namespace lab;

namespace {

// "tokens_of_expert" and 7 of "tokens_of_expert_07".
struct Numbered {
  std::string name;
  size_t number;
};

std::optional<Numbered> numbered(std::string_view metric) {
  const size_t at  = metric.size() - std::min<size_t>(metric.size(), 3);
  const auto digit = [&](size_t i) { return std::isdigit(static_cast<unsigned char>(metric[i])) != 0; };
  if (at == 0 || metric[at] != '_' || !digit(at + 1) || !digit(at + 2)) return std::nullopt;
  return Numbered{std::string(metric.substr(0, at)),
                  static_cast<size_t>(10 * (metric[at + 1] - '0') + (metric[at + 2] - '0'))};
}

// By name: how many numbers, of those that are complete from 00 on and long enough to draw.
std::map<std::string, size_t> series_of(const PointRecord& point) {
  std::map<std::string, std::set<size_t>> found;
  for (const VariantRecord& variant : point.variants)
    for (const auto& [name, metric] : variant.metrics)
      if (const auto of = numbered(name)) found[of->name].insert(of->number);
  std::map<std::string, size_t> series;
  for (const auto& [name, numbers] : found)
    if (numbers.size() >= 4 && *numbers.rbegin() + 1 == numbers.size()) series[name] = numbers.size();
  return series;
}

// NaN where the variant lacks one.
std::vector<double> values_of(const VariantRecord& variant, const std::string& series, size_t count) {
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i) {
    const auto found = variant.metrics.find(fmt::format("{}_{:02}", series, i));
    values.push_back(found == variant.metrics.end() ? NAN : found->second.value);
  }
  return values;
}

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

// Of the values over their mean: 0 where all are equal. NaN without a positive mean.
double relative_variance(const std::vector<double>& values, double mean) {
  double variance = 0;
  for (const double v : values) variance += (v - mean) * (v - mean) / static_cast<double>(values.size());
  return mean > 0 ? variance / (mean * mean) : NAN;
}

std::string series_chart(const PointRecord& point, const std::string& series, size_t count,
                         const std::string& id, const std::string& name) {
  constexpr double kWidth = 356, kLeft = 8, kRight = kWidth - 40, kRow = 66, kLane = 42;
  struct Lane {
    std::string variant;
    std::vector<double> values;
  };
  std::vector<Lane> lanes;
  double largest = 0;
  for (const VariantRecord& variant : point.variants)
    if (Lane lane{variant.id, values_of(variant, series, count)}; all_finite(lane.values)) {
      largest = std::max(largest, *std::max_element(lane.values.begin(), lane.values.end()));
      lanes.push_back(std::move(lane));
    }
  if (lanes.empty() || !(largest > 0)) return "";
  const std::string what = metric_name_text(series);
  const double bottom    = static_cast<double>(lanes.size()) * kRow + 2;
  Drawing drawing(
      id, kWidth, bottom + 34, fmt::format("{} of {}", what, name),
      fmt::format("{} lanes of {} bars on one scale; the line is a lane's mean.", lanes.size(), count));
  const double step = (kRight - kLeft) / static_cast<double>(count);
  double y          = 2;
  for (const Lane& lane : lanes) {
    double mean = 0;
    for (const double v : lane.values) mean += v / static_cast<double>(count);
    const double variance = relative_variance(lane.values, mean);
    drawing.text({kLeft, y + 11}, lane.variant, {"code"});
    drawing.text({kRight, y + 11},
                 std::isfinite(variance) ? fmt::format("variance {:.3g}", variance) : std::string(kAbsent),
                 {"quiet", Anchor::end});
    const double top = y + 17;
    const Scale scale{{0, largest}, top + kLane, top, false};
    drawing.bar({kLeft, top}, kRight - kLeft, kLane, {"lane", ""});
    for (size_t i = 0; i < count; ++i)
      if (lane.values[i] > 0)
        drawing.bar({kLeft + step * static_cast<double>(i) + 1, scale.at(lane.values[i])}, step - 2,
                    scale.from - scale.at(lane.values[i]),
                    {"share", fmt::format("{} {:02}: {}", what, i, number_text(lane.values[i]))});
    drawing.line({kLeft, scale.at(mean)}, {kRight, scale.at(mean)}, {"unity", ""});
    drawing.text({kRight + 4, top + 9}, tick_text(largest), {"tick"});
    drawing.text({kRight + 4, top + kLane}, "0", {"tick"});
    y += kRow;
  }
  for (const size_t i : {size_t{0}, count / 2, count - 1})
    drawing.text({kLeft + step * (static_cast<double>(i) + 0.5), bottom + 8}, fmt::format("{:02}", i),
                 {"tick", Anchor::middle});
  drawing.text({kLeft, bottom + 25}, "number; the broken line is the mean", {"name"});
  return fmt::format(
      "<figure><figcaption>{}: bars on one scale. Variance is that of the bars over their "
      "mean.</figcaption>\n{}</figure>\n",
      escape(what), drawing.embedded());
}

}  // namespace

std::string metrics_html(const PointRecord& point, const std::string& id, const std::string& name) {
  std::map<std::string, size_t> series = series_of(point);
  std::string charts;
  for (auto at = series.begin(); at != series.end();) {
    const std::string chart =
        series_chart(point, at->first, at->second, fmt::format("{}-{}", id, charts.size()), name);
    charts += chart;
    at = chart.empty() ? series.erase(at) : std::next(at);  // what is not drawn stays in the table
  }

  std::set<std::string> names;
  std::vector<const VariantRecord*> with;
  for (const VariantRecord& variant : point.variants) {
    bool any = false;
    for (const auto& [metric, value] : variant.metrics) {
      const auto of = numbered(metric);
      if (metric == "bytes_per_s" || metric == "flops_per_s" || (of && series.count(of->name) > 0)) continue;
      names.insert(metric);
      any = true;
    }
    if (any) with.push_back(&variant);
  }
  if (names.empty()) return charts;
  std::string out =
      "<table class=\"metrics\">\n<caption>Metrics and counters</caption>\n<thead><tr><th></th>";
  for (const VariantRecord* v : with)
    out += fmt::format("<th scope=\"col\" class=\"num\">{}</th>", escape(v->id));
  out += "</tr></thead>\n<tbody>\n";
  for (const std::string& metric : names) {
    out += fmt::format("<tr><th scope=\"row\">{}</th>", escape(metric_name_text(metric)));
    for (const VariantRecord* v : with) {
      const auto found = v->metrics.find(metric);
      out += fmt::format("<td class=\"num\">{}</td>", found == v->metrics.end()
                                                          ? std::string(kAbsent)
                                                          : metric_value_text(metric, found->second.value));
    }
    out += "</tr>\n";
  }
  out = scroll_box("Metrics", out + "</tbody></table>\n");
  return charts.empty() ? out : "<div>\n" + charts + out + "</div>\n";  // one cell of the panel's grid
}

}  // namespace fathom::report
