// FP8 for half of the tokens, drawn by lot: what a rule must beat to be one. The lot follows from the texts,
// so that calls of one input agree.
#include "core/rng.h"
#include "row_formats.h"

namespace fathom::lab::precision_by_entropy {

void chance(const RoundedForward& p, Context&) {
  uint64_t seed = 0;
  for (int64_t t = 0; t < p.tokens(); ++t) seed = 31 * seed + static_cast<uint64_t>(p.rows(t, 0));
  std::vector<double> lot(static_cast<size_t>(p.tokens()));
  fill_uniform(lot.data(), p.tokens(), seed, 0, 1);
  forward_in(p, upper_half_in_fp8(lot));
}

}  // namespace fathom::lab::precision_by_entropy
