// The same step                                            T tokens on each; W = 1.31 MB of weights, fp32
//
// kept    weights and gradients of half of the dense layer, W/10, and a quarter of the experts' units, W/5;
//         activations of 2 T tokens, half of their hidden units
// sent    W/10 for gradients, 4 KiB T within tp, and 2 KiB T for rows to experts and back
// flops   as on every mesh
// limit   FMA peak of a core
// idea    both cuts at once: nobody has a copy of an expert's weights, so their gradients never travel
#include "training.h"

namespace fathom::lab::device_mesh_cpu {

Step ep2_tp2(const Training& p, Context& context) { return step_on("ep2_dp1_tp2", p, context); }

}  // namespace fathom::lab::device_mesh_cpu
