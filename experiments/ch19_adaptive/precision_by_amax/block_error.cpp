// As many inputs in each format as the amax rule has, but FP4 for those that lose least in it.
#include "site_formats.h"

namespace fathom::lab::precision_by_amax {

void block_error(const RoundedForward& p, Context&) {
  const std::vector<Seen> seen = seen_at_sites(p);
  std::vector<double> errors;
  for (const Seen& site : seen) errors.push_back(site.fp4_error);
  forward_in(p, in_order_of(errors, formats_by_amax(seen)));
}

}  // namespace fathom::lab::precision_by_amax
