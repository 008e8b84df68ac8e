// experts(t, .) = the 4 largest of logits(t, .) + bias, weights(t, .) = the softmax over those
//
// bytes   4 E T read, 8 * 4 T written: 0.7 MB for 4096 rows of 32 experts
// limit   latency
// idea    a warp has a row, a lane an expert
#include "core/cuda.h"
#include "routing.h"

namespace fathom::lab::fused_norm_router {
namespace {

constexpr int kWarps = 8;  // rows of a block
static_assert(kExperts == 32, "a lane has an expert");

// An unsigned number in the order of the floats; none is 0.
__device__ uint32_t key_of(float v) {
  const uint32_t bits = __float_as_uint(v + 0.0f);  // -0 as 0
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__global__ void __launch_bounds__(32 * kWarps)
    choose_kernel(const float* logits, const float* bias, int32_t* experts, float* weights, int rows) {
  const int lane = threadIdx.x, row = blockIdx.x * kWarps + threadIdx.y;
  if (row >= rows) return;
  const float logit = logits[row * kExperts + lane] + bias[lane];
  uint32_t key      = key_of(logit);
  int chosen        = 0;  // by lane k: the k-th
#pragma unroll
  for (int k = 0; k < kChosen; ++k) {
    const uint32_t best = __reduce_max_sync(~0u, key);
    const int who       = __ffs(static_cast<int>(__ballot_sync(~0u, key == best))) - 1;
    if (lane == who) key = 0;
    if (lane == k) chosen = who;
  }
  const float of_chosen = __shfl_sync(~0u, logit, chosen), largest = __shfl_sync(~0u, of_chosen, 0);
  const float mine = lane < kChosen ? expf(of_chosen - largest) : 0;
  float total      = mine;
#pragma unroll
  for (int other = 16; other > 0; other /= 2) total += __shfl_xor_sync(~0u, total, other);
  if (lane >= kChosen) return;
  experts[row * kChosen + lane] = chosen;
  weights[row * kChosen + lane] = mine / total;
}

}  // namespace

void choose(const Routing& p, StreamRef stream) {
  if (p.rows == 0) return;
  choose_kernel<<<blocks_for(p.rows, kWarps), dim3(32, kWarps), 0, stream>>>(
      p.logits.data(), p.bias.data(), p.experts.data(), p.weights.data(), static_cast<int>(p.rows));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::fused_norm_router
