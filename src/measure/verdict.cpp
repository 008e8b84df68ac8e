#include "measure/verdict.h"

#include <cmath>

#include "core/expect.h"

namespace fathom::measure {

std::string_view name(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster:
      return "FASTER";
    case Verdict::slower:
      return "SLOWER";
    case Verdict::same:
      return "SAME";
    case Verdict::inconclusive:
      return "INCONCLUSIVE";
    case Verdict::invalid:
      return "INVALID";
  }
  contract_broken("a known verdict", "a verdict outside its enumeration", __FILE__, __LINE__);
}

Verdict judge(const std::optional<Interval>& ratio, double margin) {
  FATHOM_EXPECT(margin >= 0, "a verdict's margin cannot be negative");
  if (!ratio) return Verdict::inconclusive;
  FATHOM_EXPECT(ratio->lo > 0 && ratio->lo <= ratio->hi && std::isfinite(ratio->hi),
                "a ratio's interval must be positive, finite and ordered: check the times it came from");
  const double above = 1 + margin, below = 1 / above;
  if (ratio->lo > above) return Verdict::faster;
  if (ratio->hi < below) return Verdict::slower;
  if (ratio->lo >= below && ratio->hi <= above) return Verdict::same;
  return Verdict::inconclusive;
}

bool aa_is_advisory(const std::optional<Interval>& aa_ratio) {
  return !aa_ratio || aa_ratio->lo > 1 || aa_ratio->hi < 1;
}

}  // namespace fathom::measure
