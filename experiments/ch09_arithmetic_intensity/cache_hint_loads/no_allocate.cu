// out = A x                                  M x K, bf16 matrix, fp32 vector
//
// bytes   2 M K
// flops   2 M K
// limit   DRAM bandwidth
// idea    A bypasses L1, which keeps x; and L2 fetches 256 bytes for every 32 requested. The hints are those
//         of DeepEP's dispatch kernels, https://github.com/deepseek-ai/DeepEP
#include "gemv.cuh"

namespace fathom::lab::cache_hint_loads {
namespace {

struct NoAllocate {
  static constexpr int kRowsAhead = 0;
  static __device__ uint2 four(const uint2* from) { return four_past_l1(from); }
};

}  // namespace

void no_allocate(const Gemv& p, StreamRef stream) { launch<NoAllocate>(p, stream); }

}  // namespace fathom::lab::cache_hint_loads
