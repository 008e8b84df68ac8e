// A CTA for one or eight query heads of a row walks over the row's whole context.
#pragma once

#include "cuda/check.h"
#include "online_softmax.cuh"

namespace fathom::lab::decode_attention_gpu {

// Grid: (kHeads / kHeadsOfCta, S).
template <int kHeadsOfCta>
__global__ void __launch_bounds__(kThreads, kHeadsOfCta == 1 ? 6 : 3)
    whole_rows_kernel(const __grid_constant__ DecodeAttention p) {
  __shared__ typename Running<kHeadsOfCta>::Shared shared;
  const int head = static_cast<int>(blockIdx.x) * kHeadsOfCta, s = static_cast<int>(blockIdx.y);
  Running<kHeadsOfCta> running(p, s, head);
  running.walk(shared.stages, p, s, head / kGroup, reach_of(p, s));
  const Merged merged = running.merge(shared);
  const int h         = static_cast<int>(threadIdx.x) / (kHeadDim / 4);
  if (h < kHeadsOfCta)
    store_result(&p.out(s, head + h, threadIdx.x % (kHeadDim / 4) * 4), merged, p.sinks(head + h) * kLog2E);
}

template <int kHeadsOfCta>
void whole_rows(const DecodeAttention& p, StreamRef stream) {
  if (p.q.size() == 0) return;
  FATHOM_EXPECT(p.q.extent(0) <= 65535 && p.context < (int64_t{1} << 30),
                "sequences are counted by the grid's y, positions in 31 bits");
  whole_rows_kernel<kHeadsOfCta>
      <<<dim3(kHeads / kHeadsOfCta, static_cast<unsigned>(p.q.extent(0))), kThreads, 0, stream>>>(p);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::decode_attention_gpu
