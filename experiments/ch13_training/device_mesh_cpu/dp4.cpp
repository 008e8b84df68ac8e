// Gradients of all weights from the tokens of 4 ranks      T tokens on each; W = 1.31 MB of weights, fp32
//
// kept    W of weights and W of gradients on every rank; activations of T tokens
// sent    3/4 W twice by each rank: an all-reduce of all gradients, whatever T
// flops   T 128 (10 256 + 12 128) on each rank, on every mesh
// limit   FMA peak of a core
// idea    baseline: every rank has the whole model, and the ranks sum their gradients
#include "training.h"

namespace fathom::lab::device_mesh_cpu {

Step dp4(const Training& p, Context& context) { return step_on("ep1_dp4_tp1", p, context); }

}  // namespace fathom::lab::device_mesh_cpu
