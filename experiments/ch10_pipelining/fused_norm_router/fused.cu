// y = rmsnorm(x) in bf16; logits = router y + bias; the 4 largest, and the softmax over those
//
// bytes   6 T H
// flops   2 E T H
// limit   DRAM bandwidth. H200: 4096 rows of 2880 are 71 MB, 18 us at the 3.98 TB/s of a copy;
//         of few rows latency
// idea    the engine's op, one kernel: a cluster of 8 blocks has 16 rows, whose numbers stay in the registers
//         that loaded them until they are multiplied with the router; blocks send each other their sums
#include "kernels/moe/rmsnorm_router.h"
#include "routing.h"

namespace fathom::lab::fused_norm_router {

void fused(const Routing& p, StreamRef stream) {
  kernels::rmsnorm_router(p.x, p.norm, kEpsilon, p.router, p.bias, p.positions, p.y, p.experts, p.weights,
                          stream);
}

}  // namespace fathom::lab::fused_norm_router
