// out = leaky integrator of in        n numbers from the host and back, fp32
//
// link    4 n to the device and 4 n back, which the link carries at the same time
// flops   2 n steps
// limit   the link, one way. H200: PCIe, some 55 GB/s; 128 MiB take 2.44 ms, the 1792 steps on them 2.1 ms
// idea    baseline: copy everything, compute, copy everything back; the host waits after each step
#include "chunk.cuh"

namespace fathom::lab::copy_compute_overlap {

void blocking(const Offload& p, StreamRef stream) {
  if (p.n() == 0) return;
  const Chunk all{.first = 0, .count = p.n()};
  all.copy_in(p, p.pinned_in, stream);
  FATHOM_CUDA(cudaStreamSynchronize(stream));
  all.compute(p, stream);
  FATHOM_CUDA(cudaStreamSynchronize(stream));
  all.copy_out(p, stream);
  FATHOM_CUDA(cudaStreamSynchronize(stream));
}

}  // namespace fathom::lab::copy_compute_overlap
