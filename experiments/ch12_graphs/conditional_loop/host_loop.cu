// A loop of up to `steps` steps of 5 small kernels, whose end only the GPU knows.
//
// bytes   160 KiB a step, in L2
// flops   0
// limit   none: the question is who starts the next step
// idea    none yet: the host launches a step, reads the flag, and launches the next
#include "decode.cuh"

namespace fathom::lab::conditional_loop {

void host_loop(const Decode& p, StreamRef stream) {
  if (p.steps == 0) return;
  launch_begin(p, stream);
  for (int64_t step = 0; step < p.steps; ++step) {
    launch_step(p, ToMemoryOnly{}, stream);
    enqueue_flag(p, stream);
    if (is_done(p, stream)) return;
  }
}

}  // namespace fathom::lab::conditional_loop
