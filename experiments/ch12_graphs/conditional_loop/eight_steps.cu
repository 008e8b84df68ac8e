// A loop of up to `steps` steps of 5 small kernels, whose end only the GPU knows.
//
// bytes   160 KiB a step, in L2
// flops   0
// limit   none: the question is who starts the next step
// idea    the host looks after every eighth step. Up to seven steps run for nothing: their kernels see that
//         the loop is done and return
#include "host_replay.cuh"

namespace fathom::lab::conditional_loop {

Call eight_steps(const Decode& p, StreamRef stream) { return replay_of(8, p, stream); }

}  // namespace fathom::lab::conditional_loop
