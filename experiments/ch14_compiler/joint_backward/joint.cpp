// y = rms_norm(x) w silu(z), and dx, dz, dw of dy      T x 2048, fp32
//
// bytes   24 an element: x, z, dy read; y, dx, dz written
// limit   memory bandwidth
// idea    forward and backward are one graph: what the backward half needs of the forward half is in L1
#include "program.h"

namespace fathom::lab::joint_backward {

Launch<GatedNorm> joint(const GatedNorm&, Context&) { return launch_of(compile::fuse); }

}  // namespace fathom::lab::joint_backward
