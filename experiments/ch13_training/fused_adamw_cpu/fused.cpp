// One step of AdamW       n weights, fp32
//
// bytes   28 n: w, m, v and g read, w, m and v written; 40 n move, as a line is fetched before it is written
// flops   14 n
// limit   memory bandwidth
// idea    one pass: the new m and v are used while they are in registers
#include "adamw.h"

namespace fathom::lab::fused_adamw_cpu {

void fused(const AdamW& p, Context&) { adamw::update(p.factors(), p.weights(), p.w.size()); }

}  // namespace fathom::lab::fused_adamw_cpu
