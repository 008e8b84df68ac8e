// out = leaky integrator of in        n numbers from the host and back, fp32
//
// link    4 n to the device and 4 n back, which the link carries at the same time
// flops   2 n steps
// limit   the link, one way. H200: PCIe, some 55 GB/s; 128 MiB take 2.44 ms, the 1792 steps on them 2.1 ms
// idea    no copies and no chunks: one kernel reads the host's memory and writes to it. While some CTAs wait
//         for the link, others compute, so that nothing is handed on, and nothing fills or drains but one
//         wave
#include "experiments/ch11_streams/leaky_integrator.cuh"
#include "offload.h"

namespace fathom::lab::copy_compute_overlap {

void zero_copy(const Offload& p, StreamRef stream) {
  leaky_integrator::integrate(p.pinned_in.data(), p.out.data(), p.n(), p.steps, stream);
}

}  // namespace fathom::lab::copy_compute_overlap
