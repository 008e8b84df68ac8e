// Adapters of rank 8: the products of weights' gradients are gone, and what they need with them.
#include "fine_tuning.h"

namespace fathom::lab::lora_cpu {

void rank_8(const FineTuning& p, Context& context) { two_steps(p, 8, context); }

}  // namespace fathom::lab::lora_cpu
