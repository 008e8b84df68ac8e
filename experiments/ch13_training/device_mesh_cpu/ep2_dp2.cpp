// The same step                                            T tokens on each; W = 1.31 MB of weights, fp32
//
// kept    weights and gradients of the dense layer, W/5, and of half of the experts, 2/5 W; activations of T
//         tokens
// sent    3/10 W and 2/5 W for gradients, and 1 KiB T for rows: half of the tokens, four times
// flops   as on every mesh
// limit   FMA peak of a core
// idea    experts lie on half of the ranks each, and tokens go to them; an expert's gradient is summed by two
#include "training.h"

namespace fathom::lab::device_mesh_cpu {

Step ep2_dp2(const Training& p, Context& context) { return step_on("ep2_dp2_tp1", p, context); }

}  // namespace fathom::lab::device_mesh_cpu
