// experts(t, .) = the 4 largest of logits(t, .) + bias, weights(t, .) = the softmax over those
//
// bytes   4 E T read, 8 * 4 T written: 0.7 MB for 4096 rows of 32 experts
// limit   latency
// idea    a warp for each row, a lane for each expert
#include "cuda/check.h"
#include "cuda/radix_key.cuh"
#include "cuda/warp_reduce.cuh"
#include "routing.h"

namespace fathom::lab::fused_norm_router {
namespace {

constexpr int kWarps = 8;  // rows of a CTA
static_assert(kExperts == 32, "a lane has an expert");

__global__ void __launch_bounds__(32 * kWarps)
    choose_kernel(const float* logits, const float* bias, int32_t* experts, float* weights, int rows) {
  const int lane = threadIdx.x, row = blockIdx.x * kWarps + threadIdx.y;
  if (row >= rows) return;
  const float logit = logits[row * kExperts + lane] + bias[lane];
  uint32_t key      = radix_key(logit);
  int chosen        = 0;  // lane k: the k-th largest
#pragma unroll
  for (int k = 0; k < kChosen; ++k) {
    const uint32_t best = __reduce_max_sync(~0u, key);
    const int who       = __ffs(static_cast<int>(__ballot_sync(~0u, key == best))) - 1;
    if (lane == who) key = 0;
    if (lane == k) chosen = who;
  }
  const float of_chosen = __shfl_sync(~0u, logit, chosen), largest = __shfl_sync(~0u, of_chosen, 0);
  const float mine  = lane < kChosen ? expf(of_chosen - largest) : 0;
  const float total = warp_reduce_sum(mine);
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
