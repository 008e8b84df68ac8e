// x = (x xor step) * factor + l, 24 times         the step changes from call to call
//
// bytes   8 n a kernel, in L2
// flops   0
// limit   none: the question is how the GPU gets the step
// idea    none yet: 24 launches, each with the step as an argument
#include "chain.cuh"

namespace fathom::lab::graph_update {

void launched(const Chain& p, StreamRef stream) { launch_chain(p, Argument{p.step(0)}, stream); }

void launch_reading(const Chain& p, StreamRef stream) {
  launch_chain(p, InDeviceMemory{p.step_on_device.data()}, stream);
}

}  // namespace fathom::lab::graph_update
