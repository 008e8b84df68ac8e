// y = rms_norm(x) w silu(z), and dx, dz, dw of dy      T x 2048, fp32
//
// bytes   24 an element: x, z, dy read; y, dx, dz written
// limit   memory bandwidth
// idea    baseline: a launch a node, forward and backward, whose results go to memory
#include "program.h"

namespace fathom::lab::joint_backward {

Launch<GatedNorm> eager(const GatedNorm&, Context&) { return launch_of(compile::unfused); }

}  // namespace fathom::lab::joint_backward
