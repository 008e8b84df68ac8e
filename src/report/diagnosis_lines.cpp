#include "report/diagnosis_lines.h"

#include <fmt/format.h>

#include "lab/quantity.h"
#include "lab/target.h"
#include "report/highlights.h"

namespace fathom::report {

std::string diagnosis_lines(const lab::ExperimentRecord& experiment, const lab::PointRecord& point,
                            const ReportContext& context) {
  const lab::VariantRecord* best = best_of(point);
  std::string lines;
  for (const lab::VariantRecord& variant : point.variants) {
    if (variant.id != point.baseline && &variant != best) continue;
    const auto diagnosis = context.diagnoses.find(lab::result_id(experiment.id, variant.id, point.at));
    if (diagnosis == context.diagnoses.end()) continue;
    lines += fmt::format("<li><span class=\"mono\">{}</span>: {}.</li>\n", lab::escape(variant.id),
                         lab::escape(diagnosis->second));
  }
  if (lines.empty()) return "";
  return fmt::format(
      "<p class=\"small\">What limits them (<span class=\"mono\">fathom diagnose {}</span> has evidence, "
      "gain and "
      "cures):</p>\n<ul class=\"small\">\n{}</ul>\n",
      lab::escape(experiment.id), lines);
}

}  // namespace fathom::report
