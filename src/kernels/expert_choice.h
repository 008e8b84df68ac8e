// The input of an expert layer and which experts each row goes to: RMSNorm (kernels/rmsnorm.h) to bf16, the
// router's logits of that, and their choice (kernels/router.h).
//
// bytes   a row: x 4 H, y 2 H; the router's 2 E H for every 16 rows, from L2
// flops   2 E H a row
// limit   DRAM bandwidth; with few rows latency
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/stream.h"
#include "core/view.h"

namespace fathom::kernels {

// x [T, H]; weight [H]; eps > 0; router [E, H] and bias [E]; positions [T], which no kernel of the chain
// writes; y [T, H]; experts, weights [T, top_k], descending by logit, the lower expert first where two are
// equal. Logits are sums in fp32 of the products with y as it is, rounded. A row of position -1 (padding)
// gets experts -1 with weights 0. H is a multiple of 16 and at most 3072, E at most 128, top_k at most 8 and
// E. A row's bits depend on nothing but the row.
void normalize_and_choose(View<const float, 2> x, View<const float, 1> weight, float eps,
                          View<const bf16, 2> router, View<const float, 1> bias,
                          View<const int32_t, 1> positions, View<bf16, 2> y, View<int32_t, 2> experts,
                          View<float, 2> weights, StreamRef stream);

}  // namespace fathom::kernels
