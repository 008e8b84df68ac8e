// out = A x                                  M x K, bf16 matrix, fp32 vector
//
// bytes   2 M K
// flops   2 M K
// limit   DRAM bandwidth; M K more from L2 or L1 for x, a quarter of what one row at a time takes
// idea    an element of x, once in a register, is multiplied with four rows: a quarter of the loads of x,
//         without a hint
#include "gemv.cuh"

namespace fathom::lab::cache_hint_loads {
namespace {

struct Plain {
  static constexpr int kRowsAhead = 0;
  static __device__ uint2 four(const uint2* from) { return __ldg(from); }
};

}  // namespace

void four_rows(const Gemv& p, StreamRef stream) { launch<Plain, 4>(p, stream); }

}  // namespace fathom::lab::cache_hint_loads
