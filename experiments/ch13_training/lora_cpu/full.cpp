// All parameters: three products for each linear layer, and 12 bytes of state for each parameter.
#include "fine_tuning.h"

namespace fathom::lab::lora_cpu {

void full(const FineTuning& p, Context& context) { two_steps(p, 0, context); }

}  // namespace fathom::lab::lora_cpu
