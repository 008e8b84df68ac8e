#include "report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/quantity.h"
#include "report/highlights.h"
#include "report/svg.h"

namespace fathom::report {

using namespace lab;

namespace {

// Narrow enough for a phone, so that no chart of a section is ever shrunk to unreadable; wide pages put
// several side by side.
constexpr double kChartWidth = 380, kChartLeft = 8, kChartRight = kChartWidth - 8;
constexpr double kChartFont = 11;
constexpr double kMargin    = 0.02;  // of SAME

struct VerdictLook {
  std::string_view style;
  const char* sign;
};

VerdictLook look_of(const VariantRecord& variant) {
  if (is_invalid(variant)) return {"void", "✕ INVALID"};
  const std::string verdict = variant.verdict.value_or("");
  if (verdict == "FASTER") return {"good", "▲ FASTER"};
  if (verdict == "SLOWER") return {"bad", "▼ SLOWER"};
  if (verdict == "SAME") return {"same", "= SAME"};
  return {"doubt", "? INCONCLUSIVE"};
}

// Cut to fit, since a row has one line; the full text is the row's hover title.
std::string fitted(std::string_view text, double width) {
  const auto lines = wrap(text, width, kChartFont);
  if (lines.empty()) return "";
  return lines.size() == 1 ? lines.front() : lines.front() + "…";
}

struct RatioRow {
  const PointRecord* point;
  const VariantRecord* variant;
};

std::vector<RatioRow> ratio_rows(const ExperimentRecord& experiment) {
  std::vector<RatioRow> rows;
  for (const PointRecord& point : experiment.points)
    for (const VariantRecord& variant : point.variants)
      if (variant.ratio && variant.ratio->median > 0 && std::isfinite(variant.ratio->median))
        rows.push_back({&point, &variant});
  return rows;
}

// The medians set the range, and an interval extends it by at most 3 times: one very wide interval must not
// flatten the others.
Range ratio_range(const std::vector<RatioRow>& rows) {
  std::vector<double> medians{1 / 1.05, 1.05}, all;
  for (const RatioRow& row : rows) medians.push_back(row.variant->ratio->median);
  const Range middle = range_of(medians, true, 0);
  all                = medians;
  for (const RatioRow& row : rows)
    for (const double end : {row.variant->ratio->lo, row.variant->ratio->hi})
      all.push_back(std::clamp(end, middle.lo / 3, middle.hi * 3));
  return range_of(all, true, 0.04);
}

}  // namespace

std::string ratio_chart(const ExperimentRecord& experiment, const std::string& id) {
  constexpr double kRow = 31, kGroup = 22;
  const auto rows = ratio_rows(experiment);
  if (rows.empty()) return "";
  const bool grouped    = experiment.points.size() > 1;
  double height         = 8;
  const PointRecord* at = nullptr;
  for (const RatioRow& row : rows) {
    height += kRow + (grouped && row.point != at ? kGroup : 0);
    at = row.point;
  }
  const double bottom = height + 2;
  Drawing drawing(
      id, kChartWidth, bottom + 38, "Speed-ups of " + experiment.id,
      fmt::format("Baseline time over variant time with 95 % intervals, {} rows, logarithmic axis; the "
                  "band is the margin of 2 % either side of 1.",
                  rows.size()));
  const Scale x{ratio_range(rows), kChartLeft + 6, kChartRight - 6, true};
  drawing.bar({x.at(1 - kMargin), 2}, x.at(1 + kMargin) - x.at(1 - kMargin), bottom - 2, {"band", ""});
  drawing.x_axis(x, 2, bottom, "speed-up: baseline time / variant time", 7);
  drawing.line({x.at(1), 2}, {x.at(1), bottom}, {"unity", ""});

  double y = 8;
  at       = nullptr;
  for (const auto& [point, variant] : rows) {
    if (grouped && point != at) {
      drawing.text({kChartLeft, y + 12}, point_text(point->at), {"halo quiet"});
      y += kGroup;
    }
    at                     = point;
    const Ratio& r         = *variant->ratio;
    const VerdictLook look = look_of(*variant);
    const std::string said =
        fmt::format("{} {}{}", look.sign, ratio_text(r.median),
                    point->aa && point->aa->advisory && !is_invalid(*variant) ? " advisory" : "");
    const std::string title = fmt::format("{}: {} {}, {}", variant->id, ratio_text(r.median),
                                          ratio_interval_text(r.median, r.lo, r.hi), look.sign);
    const double room       = kChartRight - kChartLeft - text_width(said, kChartFont) - 12;
    drawing.text({kChartLeft, y + 10}, fitted(variant->id, room), {"halo code"});
    drawing.text({kChartRight, y + 10}, said, {fmt::format("halo label {}", look.style), Anchor::end});
    drawing.interval(x, y + 20, r.lo, r.hi, {look.style, title});
    if (!x.contains(r.median)) {
      // Off the axis: the interval's arrow head says where it is.
    } else if (is_invalid(*variant)) {
      drawing.cross({x.at(r.median), y + 20}, 4, {"void", title});
    } else if (variant->kind == "library" || variant->kind == "engine") {
      drawing.diamond({x.at(r.median), y + 20}, 4.6, {look.style, title});
    } else {
      drawing.circle({x.at(r.median), y + 20}, 3.6, {look.style, title});
    }
    y += kRow;
  }
  return drawing.embedded();
}

namespace {

struct Strip {
  const VariantRecord* variant;
  std::vector<double> deviations;  // of a sample from the median: 0.01 is 1 % slower
  bool quantiles;                  // not in round order
};

std::vector<Strip> strips_of(const PointRecord& point) {
  std::vector<Strip> strips;
  for (const VariantRecord& variant : point.variants) {
    if (!variant.time_ns || !(variant.time_ns->median > 0)) continue;
    const bool raw    = !variant.samples_ns.empty();
    const auto& times = raw ? variant.samples_ns : variant.quantiles_ns;
    Strip strip{&variant, {}, !raw};
    for (const double ns : times)
      if (std::isfinite(ns)) strip.deviations.push_back(ns / variant.time_ns->median - 1);
    if (!strip.deviations.empty()) strips.push_back(std::move(strip));
  }
  return strips;
}

// One scale for all lanes, so that they compare: wide enough for 95 of 100 samples, from 2 % to 100 %.
double lane_reach(const std::vector<Strip>& strips) {
  std::vector<double> sizes;
  for (const Strip& strip : strips)
    for (const double d : strip.deviations) sizes.push_back(std::abs(d));
  const size_t at = std::min(sizes.size() - 1, sizes.size() * 95 / 100);
  std::nth_element(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(at), sizes.end());
  for (const double reach : {0.02, 0.05, 0.1, 0.2, 0.5})
    if (sizes[at] <= reach) return reach;
  return 1;
}

}  // namespace

std::string sample_chart(const PointRecord& point, const std::string& id, const std::string& name) {
  constexpr double kRow = 62, kLane = 38;
  const auto strips = strips_of(point);
  if (strips.empty()) return "";
  const double reach  = lane_reach(strips);
  const double bottom = static_cast<double>(strips.size()) * kRow + 2;
  const bool ordered = std::none_of(strips.begin(), strips.end(), [](const Strip& s) { return s.quantiles; });
  Drawing drawing(id, kChartWidth, bottom + 34, "Samples of " + name,
                  fmt::format("{} of {} variants as deviation from each variant's median, lanes of ±{}.",
                              ordered ? "Every sample in round order" : "64 quantiles of the samples",
                              strips.size(), share_text(reach)));
  size_t longest = 1;
  for (const Strip& s : strips) longest = std::max(longest, s.deviations.size());
  const Scale rounds{
      {0, static_cast<double>(std::max<size_t>(longest, 2) - 1)}, kChartLeft + 4, kChartRight - 42, false};

  double y = 2;
  for (const auto& [variant, deviations, quantiles] : strips) {
    const Spread& time = *variant->time_ns;
    const std::string said =
        fmt::format("{} · MAD {}", time_text(time.median), share_text(time.mad / time.median));
    drawing.text({kChartLeft, y + 11},
                 fitted(variant->id, kChartRight - kChartLeft - text_width(said, kChartFont) - 12), {"code"});
    drawing.text({kChartRight, y + 11}, said, {"quiet", Anchor::end});
    const double top = y + 17;
    const Scale lane{{-reach, reach}, top + kLane - 2, top + 2, false};
    drawing.bar({kChartLeft, top}, rounds.to + 4 - kChartLeft, kLane, {"lane", ""});
    drawing.line({kChartLeft, lane.at(0)}, {rounds.to + 4, lane.at(0)}, {"axis", ""});
    const std::string end = digits_text(reach * 100, 1) + " %";
    drawing.text({rounds.to + 8, top + 9}, fmt::format("+{}", end), {"tick"});
    drawing.text({rounds.to + 8, top + kLane - 1}, fmt::format("−{}", end), {"tick"});
    std::vector<Place> inside, beyond;
    for (size_t i = 0; i < deviations.size(); ++i) {
      const Place at{rounds.at(static_cast<double>(i)), lane.at(deviations[i])};
      (lane.contains(deviations[i]) ? inside : beyond).push_back(at);
    }
    const std::string title = fmt::format(
        "{}: {} {}, median {}, p10 {}, p90 {}, lag-1 autocorrelation {:.2f}", variant->id, deviations.size(),
        quantiles ? "quantiles" : "samples", time_text(time.median), time_text(time.p10), time_text(time.p90),
        std::isfinite(time.autocorrelation) ? time.autocorrelation : 0.0);
    if (!inside.empty()) drawing.dots(inside, {"sample", title});
    if (!beyond.empty()) drawing.dots(beyond, {"beyond", fmt::format("{} beyond the lane", beyond.size())});
    y += kRow;
  }
  for (const double tick : ticks(rounds, 6))
    drawing.text({rounds.at(tick), bottom + 8}, tick_text(tick), {"tick", Anchor::middle});
  drawing.text(
      {(rounds.from + rounds.to) / 2, bottom + 25},
      ordered ? "round; heavy dots lie beyond their lane" : "quantile (no raw samples in this record)",
      {"name", Anchor::middle});
  return drawing.embedded();
}

std::string share_chart(const RunRecord& run) {
  struct Row {
    std::string name, limit;
    double best, baseline;  // baseline < 0: not known
    const VariantRecord* variant;
  };
  std::vector<Row> rows;
  for (const ExperimentRecord& experiment : run.experiments)
    for (const PointRecord& point : experiment.points) {
      const VariantRecord* best = best_of(point);
      const VariantRecord* base = baseline_of(point);
      if (!best || !best->share_of_limit || !std::isfinite(*best->share_of_limit)) continue;
      const bool known =
          base && is_valid(*base) && base->share_of_limit && std::isfinite(*base->share_of_limit);
      std::string name = experiment.id;
      if (experiment.points.size() > 1) name += fmt::format(" {}", point_text(point.at));
      rows.push_back({name, point.limit, *best->share_of_limit, known ? *base->share_of_limit : -1, best});
    }
  if (rows.empty()) return "";
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.best > b.best; });

  constexpr double kRow = 31, kTop = 22;
  double most = 1;
  for (const Row& row : rows) most = std::max({most, row.best, row.baseline});
  const double bottom = kTop + static_cast<double>(rows.size()) * kRow + 2;
  Drawing drawing(
      "shares", kChartWidth, bottom + 34, "Share of the limit",
      fmt::format("The best variant's share of its measured limit at {} points, highest first, with the "
                  "baseline's as a tick.",
                  rows.size()));
  const Scale x{{0, most}, kChartLeft, kChartRight - 4, false};
  using Shape = Drawing::LegendItem::Shape;
  const Drawing::LegendItem legend[]{{"best variant", "best"}, {"baseline", "same", Shape::line}};
  drawing.legend({kChartLeft + 4, 11}, kChartRight, legend);
  for (const double tick : ticks(x, 6)) {
    drawing.line({x.at(tick), kTop}, {x.at(tick), bottom}, {"grid", ""});
    drawing.text({x.at(tick), bottom + 14}, tick_text(std::round(tick * 100)),
                 {"tick", tick == 0 ? Anchor::start : Anchor::middle});
  }
  drawing.line({x.at(1), kTop}, {x.at(1), bottom}, {"unity", ""});
  double y = kTop;
  for (const Row& row : rows) {
    const std::string title =
        fmt::format("{}, {}: {} of {}{}", row.name, row.variant->id, share_text(row.best), row.limit,
                    row.baseline >= 0 ? ", baseline " + share_text(row.baseline) : "");
    drawing.text({kChartLeft, y + 12}, fitted(row.name, kChartRight - kChartLeft - 56), {"halo code"});
    drawing.text({kChartRight - 4, y + 12}, share_text(row.best), {"halo label", Anchor::end});
    drawing.bar({x.from, y + 17}, x.to - x.from, 8, {"lane", ""});
    drawing.bar({x.from, y + 17}, x.at(row.best) - x.from, 8, {"share", title});
    if (row.baseline >= 0)
      drawing.line({x.at(row.baseline), y + 14}, {x.at(row.baseline), y + 28}, {"same", title});
    y += kRow;
  }
  drawing.text({(x.from + x.to) / 2, bottom + 30}, "% of the limit measured in the same run",
               {"name", Anchor::middle});
  return drawing.embedded();
}

}  // namespace fathom::report
