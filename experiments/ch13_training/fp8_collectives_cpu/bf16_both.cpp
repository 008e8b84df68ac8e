// What a step exchanges of n weights               n = 2 shards; a rank owns one, in fp32
//
// sent    2 n bytes by each rank: n of weights, n of gradients
// flops   none to speak of: n / 2 roundings
// limit   the kernel's copies into and out of sockets
// idea    baseline: weights and gradients travel in bf16
#include "collectives.h"

namespace fathom::lab::fp8_collectives_cpu {

Exchange bf16_both(const Collectives& p, Context& context) {
  return exchange(Format::bf16, Format::bf16, p, context);
}

}  // namespace fathom::lab::fp8_collectives_cpu
