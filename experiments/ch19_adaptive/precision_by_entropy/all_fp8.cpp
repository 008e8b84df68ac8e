// Every token in FP8.
#include "row_formats.h"

namespace fathom::lab::precision_by_entropy {

void all_fp8(const RoundedForward& p, Context&) {
  rounded_forward::forward_in(p, [](int64_t, int64_t, const float*) { return Format::fp8; });
}

}  // namespace fathom::lab::precision_by_entropy
