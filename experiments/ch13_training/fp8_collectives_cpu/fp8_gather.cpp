// What a step exchanges of n weights               n = 2 shards; a rank owns one, in fp32
//
// sent    1.5 n bytes by each rank
// flops   n / 2 encodings, n lookups
// limit   encoding and lookups, where a link is as fast as memory
// idea    weights in E4M3 with one scale, gradients in bf16
#include "collectives.h"

namespace fathom::lab::fp8_collectives_cpu {

Exchange fp8_gather(const Collectives& p, Context& context) {
  return exchange(Format::fp8, Format::bf16, p, context);
}

}  // namespace fathom::lab::fp8_collectives_cpu
