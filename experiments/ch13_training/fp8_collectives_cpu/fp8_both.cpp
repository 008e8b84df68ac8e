// What a step exchanges of n weights               n = 2 shards; a rank owns one, in fp32
//
// sent    n bytes by each rank
// flops   1.5 n encodings, 2 n lookups
// limit   as fp8_gather
// idea    gradients in E5M2 too, by an all-to-all; what arrives is summed in fp32
#include "collectives.h"

namespace fathom::lab::fp8_collectives_cpu {

Exchange fp8_both(const Collectives& p, Context& context) {
  return exchange(Format::fp8, Format::fp8, p, context);
}

}  // namespace fathom::lab::fp8_collectives_cpu
