#include "report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "lab/quantity.h"
#include "report/highlights.h"
#include "report/svg.h"

namespace fathom::report {

using namespace lab;

namespace {

// Narrow enough for a phone, so that no chart of a panel is ever shrunk to unreadable.
constexpr double kChartWidth = 356, kChartLeft = 8, kChartRight = kChartWidth - 8;
constexpr double kHistogram = 58;  // pixels
constexpr double kChartFont = 11;
constexpr int kBins         = 21;  // odd: the median has a bin of its own

// Cut to fit, since a row has one line.
std::string fitted(std::string_view text, double width) {
  const auto lines = wrap(text, width, kChartFont);
  if (lines.empty()) return "";
  return lines.size() == 1 ? lines.front() : lines.front() + "…";
}

struct Strip {
  enum class Of { samples, quantiles, summary } of = Of::summary;
  const VariantRecord* variant;
  std::vector<double> deviations;  // of a sample from the median: 0.01 is 1 % slower
};

std::vector<Strip> strips_of(const PointRecord& point) {
  std::vector<Strip> strips;
  for (const VariantRecord& variant : point.variants) {
    if (!variant.time_ns || !(variant.time_ns->median > 0)) continue;
    Strip strip{variant.samples_ns.empty() ? Strip::Of::quantiles : Strip::Of::samples, &variant, {}};
    for (const double ns : variant.samples_ns.empty() ? variant.quantiles_ns : variant.samples_ns)
      if (std::isfinite(ns)) strip.deviations.push_back(ns / variant.time_ns->median - 1);
    if (strip.deviations.empty()) {
      strip.of        = Strip::Of::summary;
      const Spread& t = *variant.time_ns;
      for (const double ns : {t.min, t.p10, t.lo, t.median, t.hi, t.p90})
        strip.deviations.push_back(std::isfinite(ns) ? ns / t.median - 1 : 0);
    }
    strips.push_back(std::move(strip));
  }
  return strips;
}

// One scale for all lanes, so that they compare: wide enough for 95 of 100 samples, from 0.1 % to 100 %.
double lane_reach(const std::vector<Strip>& strips) {
  std::vector<double> sizes;
  for (const Strip& strip : strips)
    for (const double d : strip.deviations) sizes.push_back(std::abs(d));
  const size_t at = std::min(sizes.size() - 1, sizes.size() * 95 / 100);
  std::nth_element(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(at), sizes.end());
  for (const double reach : {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5})
    if (sizes[at] <= reach) return reach;
  return 1;
}

void draw_histogram(Drawing& drawing, const Strip& strip, const Scale& lane, double left) {
  std::vector<int> bins(kBins);
  for (const double d : strip.deviations)
    if (lane.contains(d)) {
      const double share = (d - lane.range.lo) / (lane.range.hi - lane.range.lo);
      ++bins[static_cast<size_t>(std::min(kBins - 1.0, share * kBins))];
    }
  const int most    = std::max(1, *std::max_element(bins.begin(), bins.end()));
  const double step = (lane.from - lane.to) / kBins;
  for (int b = 0; b < kBins; ++b)
    if (const int count = bins[static_cast<size_t>(b)]; count > 0)
      drawing.bar({left, lane.from - (b + 1) * step}, kHistogram * count / most, step, {"share", ""});
}

// min, p10, lo, median, hi, p90.
void draw_box(Drawing& drawing, const Strip& strip, const Scale& lane, double left, double right) {
  const auto& d       = strip.deviations;
  const double middle = (left + right) / 2;
  drawing.line({middle, lane.at(d[0])}, {middle, lane.at(d[5])}, {"whisker", ""});
  drawing.bar({left, lane.at(d[5])}, right - left, lane.at(d[1]) - lane.at(d[5]), {"quartile", "p10 to p90"});
  drawing.bar({left, lane.at(d[4])}, right - left, std::max(1.0, lane.at(d[2]) - lane.at(d[4])),
              {"share", "95 % interval of the median"});
}

}  // namespace

std::string sample_chart(const PointRecord& point, const std::string& id, const std::string& name) {
  constexpr double kRow = 62, kLane = 38;
  const auto strips = strips_of(point);
  if (strips.empty()) return "";
  const double reach  = lane_reach(strips);
  const double bottom = static_cast<double>(strips.size()) * kRow + 2;
  const auto all      = [&](Strip::Of of) {
    return std::all_of(strips.begin(), strips.end(), [&](const Strip& s) { return s.of == of; });
  };
  const bool ordered = all(Strip::Of::samples), summaries = all(Strip::Of::summary);
  const std::string words = ordered     ? "round; heavy dots lie beyond their lane"
                            : summaries ? "no samples in this record: p10 to p90, and the interval"
                                        : "quantile (no raw samples in this record)";
  Drawing drawing(
      id, kChartWidth, bottom + 34, "Samples of " + name,
      fmt::format("{} variants as deviation from each variant's median, lanes of ±{}. Across: {}.",
                  strips.size(), share_text(reach), words));
  size_t longest = 1;
  for (const Strip& s : strips) longest = std::max(longest, s.deviations.size());
  const double ticks_left = kChartRight - 42, histogram_left = ticks_left - kHistogram;
  const Scale rounds{
      {0, static_cast<double>(std::max<size_t>(longest, 2) - 1)}, kChartLeft + 4, histogram_left - 10, false};

  double y = 2;
  for (const Strip& strip : strips) {
    const Spread& time = *strip.variant->time_ns;
    const std::string said =
        fmt::format("{} · MAD {}", time_text(time.median), share_text(time.mad / time.median));
    drawing.text({kChartLeft, y + 11},
                 fitted(strip.variant->id, kChartRight - kChartLeft - text_width(said, kChartFont) - 12),
                 {"code"});
    drawing.text({kChartRight, y + 11}, said, {"quiet", Anchor::end});
    const double top = y + 17;
    const Scale lane{{-reach, reach}, top + kLane - 2, top + 2, false};
    drawing.bar({kChartLeft, top}, ticks_left - kChartLeft, kLane, {"lane", ""});
    drawing.line({kChartLeft, lane.at(0)}, {ticks_left, lane.at(0)}, {"axis", ""});
    const std::string end = digits_text(reach * 100, 1) + " %";
    drawing.text({ticks_left + 4, top + 9}, fmt::format("+{}", end), {"tick"});
    drawing.text({ticks_left + 4, top + kLane - 1}, fmt::format("−{}", end), {"tick"});
    if (strip.of == Strip::Of::summary) {
      draw_box(drawing, strip, lane, rounds.from, rounds.to);
    } else {
      std::vector<Place> inside, beyond;
      for (size_t i = 0; i < strip.deviations.size(); ++i) {
        const Place at{rounds.at(static_cast<double>(i)), lane.at(strip.deviations[i])};
        (lane.contains(strip.deviations[i]) ? inside : beyond).push_back(at);
      }
      const std::string title =
          fmt::format("{}: {} {}, median {}, p10 {}, p90 {}, lag-1 autocorrelation {:.2f}", strip.variant->id,
                      strip.deviations.size(), strip.of == Strip::Of::quantiles ? "quantiles" : "samples",
                      time_text(time.median), time_text(time.p10), time_text(time.p90),
                      std::isfinite(time.autocorrelation) ? time.autocorrelation : 0.0);
      if (!inside.empty()) drawing.dots(inside, {"sample", title});
      if (!beyond.empty()) drawing.dots(beyond, {"beyond", fmt::format("{} beyond the lane", beyond.size())});
      draw_histogram(drawing, strip, lane, histogram_left);
    }
    y += kRow;
  }
  if (!summaries)
    for (const double tick : ticks(rounds, 5))
      drawing.text({rounds.at(tick), bottom + 8}, tick_text(tick), {"tick", Anchor::middle});
  drawing.text({kChartLeft, bottom + 25}, words, {"name"});
  return drawing.embedded();
}

}  // namespace fathom::report
