// The same step                                            T tokens on each; W = 1.31 MB of weights, fp32
//
// kept    W/2 of weights and W/2 of gradients; activations of 2 T tokens, half of their hidden units
// sent    W/2 for gradients, and 4 KiB T for activations: x and target, and three sums of 2 T rows
// flops   as on every mesh
// limit   FMA peak of a core
// idea    two ranks share a replica: each has half of all hidden units, and works on the tokens of both
#include "training.h"

namespace fathom::lab::device_mesh_cpu {

Step dp2_tp2(const Training& p, Context& context) { return step_on("ep1_dp2_tp2", p, context); }

}  // namespace fathom::lab::device_mesh_cpu
