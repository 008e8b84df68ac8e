// out = A x                                  M x K, bf16 matrix, fp32 vector
//
// bytes   2 M K
// flops   2 M K
// limit   DRAM bandwidth
// idea    no_allocate, and one thread prefetches the row of the next wave into L2 by a bulk instruction: a
//         block then waits for L2 instead of DRAM. The bytes are the same: where DRAM is the limit nothing is
//         gained
#include "gemv.cuh"

namespace fathom::lab::cache_hint_loads {
namespace {

struct Prefetched {
  static constexpr int kRowsAhead = 132 * kBlocks;  // of an H200: a wave, 22 MB of L2
  static __device__ uint2 four(const uint2* from) { return four_past_l1(from); }
};

}  // namespace

void prefetched(const Gemv& p, StreamRef stream) { launch<Prefetched>(p, stream); }

}  // namespace fathom::lab::cache_hint_loads
