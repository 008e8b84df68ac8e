// out = A x                                  M x K, bf16 matrix, fp32 vector
//
// bytes   2 M K
// flops   2 M K
// limit   DRAM bandwidth; but 4 M K go from L2 or L1 to registers for x, twice as much as for A
// idea    baseline: a block to a row. A row is 80 KiB, two at a time and x, 160 KiB, are more than L1: when
//         the next row needs an element of x again, lines of A have evicted it
#include "gemv.cuh"

namespace fathom::lab::cache_hint_loads {
namespace {

struct Plain {
  static constexpr int kRowsAhead = 0;
  static __device__ uint2 four(const uint2* from) { return __ldg(from); }
};

}  // namespace

void plain(const Gemv& p, StreamRef stream) { launch<Plain>(p, stream); }

}  // namespace fathom::lab::cache_hint_loads
