#include "report/interval_bar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "lab/quantity.h"
#include "report/highlights.h"

namespace fathom::report {

using namespace lab;

Scale ratio_scale(std::span<const Ratio> ratios) {
  std::vector<double> medians{1 / 1.05, 1.05};
  for (const Ratio& ratio : ratios) medians.push_back(ratio.median);
  const Range middle      = range_of(medians, true, 0);
  std::vector<double> all = medians;
  for (const Ratio& ratio : ratios)
    for (const double end : {ratio.lo, ratio.hi})
      if (std::isfinite(end)) all.push_back(std::clamp(end, middle.lo / 3, middle.hi * 3));
  return {range_of(all, true, 0.06), 0, 100, true};
}

std::string percent_text(double percent) {
  return fmt::format("{:.1f}%", std::isfinite(percent) ? std::clamp(percent, 0.0, 100.0) : 0.0);
}

std::string ratio_tick(double ratio) { return ratio < 1e5 ? fmt::format("{:.4g}", ratio) : tick_text(ratio); }

VerdictLook look_of(const VariantRecord& variant) {
  if (is_invalid(variant)) return {"void", "✕ INVALID"};
  const std::string verdict = variant.verdict.value_or("");
  if (verdict == "FASTER") return {"good", "▲ FASTER"};
  if (verdict == "SLOWER") return {"bad", "▼ SLOWER"};
  if (verdict == "SAME") return {"same", "= SAME"};
  return {"doubt", "? INCONCLUSIVE"};
}

std::string interval_bar(const Scale& scale, const VariantRecord* variant) {
  std::string out =
      fmt::format("<span class=\"iv\" aria-hidden=\"true\"><i class=\"unit\" style=\"left:{}\"></i>",
                  percent_text(scale.at(1)));
  if (variant && variant->ratio && variant->ratio->median > 0 && std::isfinite(variant->ratio->median)) {
    const Ratio& r  = *variant->ratio;
    const double lo = scale.at(r.lo), hi = scale.at(r.hi);
    const std::string_view style = look_of(*variant).style;
    const bool yardstick         = variant->kind == "library" || variant->kind == "engine";
    out += fmt::format(
        "<i class=\"span {0}\" style=\"left:{1};width:{2}\"></i><i class=\"dot {0}{3}\" "
        "style=\"left:{4}\"></i>",
        style, percent_text(lo), percent_text(hi - lo), yardstick ? " yardstick" : "",
        percent_text(scale.at(r.median)));
  }
  return out + "</span>";
}

std::string interval_axis(const Scale& scale, int most_ticks) {
  std::string out = "<span class=\"iv ticks\" aria-hidden=\"true\">";
  for (const double tick : ticks(scale, most_ticks))
    if (scale.at(tick) < 94)  // beyond, the words would leave the cell
      out +=
          fmt::format("<small style=\"left:{}\">{}×</small>", percent_text(scale.at(tick)), ratio_tick(tick));
  return out + "</span>";
}

}  // namespace fathom::report
