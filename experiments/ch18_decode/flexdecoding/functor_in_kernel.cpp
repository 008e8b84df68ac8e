#include "flex.h"

namespace fathom::lab::flexdecoding {

void functor_in_kernel(const FlexDecode& p, StreamRef stream) {
  p.with_functor([&](const auto& functor) { kernels::paged_decode_attention(p.flex_op(), functor, stream); });
}

}  // namespace fathom::lab::flexdecoding
