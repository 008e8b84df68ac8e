#pragma once

#include "experiments/ch15_moe_inference/expert_layer.h"

namespace fathom::lab::sparse_activation_cpu {

using moe::ExpertLayer;

void dense(const ExpertLayer&, Context&);
void routed(const ExpertLayer&, Context&);
void routed_grouped(const ExpertLayer&, Context&);

}  // namespace fathom::lab::sparse_activation_cpu
