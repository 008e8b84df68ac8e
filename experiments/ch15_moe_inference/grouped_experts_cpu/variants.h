#pragma once

#include "experiments/ch15_moe_inference/expert_layer.h"

namespace fathom::lab::grouped_experts_cpu {

using moe::ExpertLayer;

void token_by_token(const ExpertLayer&, Context&);
void grouped(const ExpertLayer&, Context&);
void threads(const ExpertLayer&, Context&);

}  // namespace fathom::lab::grouped_experts_cpu
