// FP8 for the tokens whose own distribution has the highest entropy. No decoder can do this: it takes the
// pass whose precision is in question. It shows what the entropy would be worth without the delay of a token.
#include "row_formats.h"

namespace fathom::lab::precision_by_entropy {

void own_entropy(const RoundedForward& p, Context&) {
  forward_in(p, upper_half_in_fp8(rounded_forward::entropies(p)));
}

}  // namespace fathom::lab::precision_by_entropy
