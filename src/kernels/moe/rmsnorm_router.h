// RMSNorm (kernels/norm/rmsnorm.h) in bf16, the router's logits of the result, and the top-k choice of
// experts (kernels/moe/router.h), fused.
//
// bytes   a row: x 4 H, y 2 H; the router's 2 E H for every 16 rows, from L2
// flops   2 E H a row
// limit   DRAM bandwidth; with few rows latency
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/cost.h"

namespace fathom::kernels {

// Of all experts, those of a rank (expert parallel).
struct ExpertRange {
  int64_t first = 0, count = INT32_MAX;
};

// x [T, H]; weight [H]; eps > 0; router [E, H] and bias [E]; positions [T], which no kernel of the chain of
// dependent launches writes (cuda/launch.cuh); y [T, H]; experts, weights [T, top_k], descending by logit,
// the lower expert first where two are equal. Logits are fp32 sums of products with the rounded y. A row of
// position -1 (padding) gets experts -1 with weights 0. H is a multiple of 16 and at most 3072, E at most
// 128, top_k at most 8 and at most E. A row's bits depend on nothing but the row. Experts are numbered from
// the first of `here`; those outside are -1, and keep their weights.
void rmsnorm_router(View<const float, 2> x, View<const float, 1> weight, float eps,
                    View<const bf16, 2> router, View<const float, 1> bias, View<const int32_t, 1> positions,
                    View<bf16, 2> y, View<int32_t, 2> experts, View<float, 2> weights, StreamRef stream,
                    const ExpertRange& here = {});

inline Cost rmsnorm_router_cost(int64_t rows, int64_t hidden, int64_t num_experts, int64_t top_k) {
  const auto T = static_cast<double>(rows), H = static_cast<double>(hidden),
             E = static_cast<double>(num_experts), K = static_cast<double>(top_k);
  return {.read    = T * (4 * H + 4) + 4 * H + E * (2 * H + 4),
          .written = T * (2 * H + 8 * K),
          .flops   = T * H * (2 * E + 4)};
}

}  // namespace fathom::kernels
