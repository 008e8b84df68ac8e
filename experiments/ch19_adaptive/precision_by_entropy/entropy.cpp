// FP8 for the tokens after whose predecessor the model was the least certain: the entropy of the distribution
// that a token was chosen from is known when its layers are computed. It says how hard this token was, and
// the precision is spent on the next.
#include <cmath>

#include "row_formats.h"

namespace fathom::lab::precision_by_entropy {

void entropy(const RoundedForward& p, Context&) {
  std::vector<double> rank = rounded_forward::entropies(p);
  for (size_t t = rank.size(); t-- > 0;)
    rank[t] = p.rows(static_cast<int64_t>(t), 1) == 0 ? INFINITY : rank[t - 1];  // a text's first has none
  forward_in(p, upper_half_in_fp8(rank));
}

}  // namespace fathom::lab::precision_by_entropy
