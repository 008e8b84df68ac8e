// The rule of thumb: the largest magnitude of a layer's inputs chooses, below 6 FP4, below 240 FP8, else
// BF16. 6 and 240 are the largest numbers of the formats. But a format has a scale, which moves any numbers
// into its range; what it loses then does not depend on amax at all.
#include "site_formats.h"

namespace fathom::lab::precision_by_amax {

void amax(const RoundedForward& p, Context&) { forward_in(p, formats_by_amax(seen_at_sites(p))); }

}  // namespace fathom::lab::precision_by_amax
