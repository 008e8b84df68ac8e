// Every token in BF16.
#include "row_formats.h"

namespace fathom::lab::precision_by_entropy {

void all_bf16(const RoundedForward& p, Context&) {
  rounded_forward::forward_in(p, [](int64_t, int64_t, const float*) { return Format::bf16; });
}

}  // namespace fathom::lab::precision_by_entropy
