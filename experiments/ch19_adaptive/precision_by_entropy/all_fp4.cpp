// Every token in FP4.
#include "row_formats.h"

namespace fathom::lab::precision_by_entropy {

void all_fp4(const RoundedForward& p, Context&) {
  rounded_forward::forward_in(p, [](int64_t, int64_t, const float*) { return Format::fp4; });
}

}  // namespace fathom::lab::precision_by_entropy
