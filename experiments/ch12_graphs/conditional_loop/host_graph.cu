// A loop of up to `steps` steps of 5 small kernels, whose end only the GPU knows.
//
// bytes   160 KiB a step, in L2
// flops   0
// limit   none: the question is who starts the next step
// idea    a step is one graph; the host still waits for the flag of each
#include "host_replay.cuh"

namespace fathom::lab::conditional_loop {

Call host_graph(const Decode& p, StreamRef stream) { return replay_of(1, p, stream); }

}  // namespace fathom::lab::conditional_loop
