// As many inputs in each format as the amax rule has, drawn by lot: what a rule must beat to be one. The lot
// follows from the texts, so that calls of one input agree.
#include "core/rng.h"
#include "site_formats.h"

namespace fathom::lab::precision_by_amax {

void chance(const RoundedForward& p, Context&) {
  const std::vector<Seen> seen = seen_at_sites(p);
  uint64_t seed                = 0;
  for (int64_t t = 0; t < p.tokens(); ++t) seed = 31 * seed + static_cast<uint64_t>(p.rows(t, 0));
  std::vector<double> lot(seen.size());
  fill_uniform(lot.data(), static_cast<int64_t>(lot.size()), seed, 0, 1);
  forward_in(p, in_order_of(lot, formats_by_amax(seen)));
}

}  // namespace fathom::lab::precision_by_amax
