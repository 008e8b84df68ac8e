// y = rms_norm(x) w silu(z), and dx, dz, dw of dy      T x 2048, fp32
//
// bytes   24 an element: x, z, dy read; y, dx, dz written
// limit   memory bandwidth
// idea    as joint, rows on all threads
#include "program.h"

namespace fathom::lab::joint_backward {

Launch<GatedNorm> threads(const GatedNorm&, Context&) { return launch_of(compile::fuse); }

}  // namespace fathom::lab::joint_backward
