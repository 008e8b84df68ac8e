// Adapters of rank 64, a quarter of the width of attention's inputs.
#include "fine_tuning.h"

namespace fathom::lab::lora_cpu {

void rank_64(const FineTuning& p, Context& context) { two_steps(p, 64, context); }

}  // namespace fathom::lab::lora_cpu
