// The problem: a layer of routed experts with a shared expert beside them, as DeepSeek-V3 and Qwen2-MoE have
// one. The routed part is grouped_experts_gpu's: 4 of 32 experts a token, in MXFP4. The shared expert takes
// every token, and its weights are bf16:
//   shared_up(t, .)    = W1 x(t, .)                   the first `width` are gates, the others linear
//   shared_gated(t, u) = silu(shared_up(t, u)) shared_up(t, width + u)
//   shared(t, .)       = W2 shared_gated(t, .)        each in bf16
// Neither part needs the other; what follows adds them up.
#pragma once

#include <functional>

#include "experiments/ch15_moe_inference/grouped_experts_gpu/grouped_experts.h"

namespace fathom::lab::shared_expert_overlap {

struct MoeLayer : grouped_experts_gpu::GroupedExperts {
  View<const bf16, 2> w1, w2;  // 2 width x width; width x width
  View<bf16, 2> shared_up, shared_gated, shared;

  MoeLayer(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

void routed_experts(const MoeLayer& p, StreamRef stream);
void shared_expert(const MoeLayer& p, StreamRef stream);

FATHOM_CUDA_LAUNCHER void one_stream(const MoeLayer& p, StreamRef stream);

// Make the second stream; the returned call is timed.
using Call = std::function<void(const MoeLayer&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call routed_first(const MoeLayer&, StreamRef);
FATHOM_CUDA_LAUNCHER Call shared_first(const MoeLayer&, StreamRef);

}  // namespace fathom::lab::shared_expert_overlap
