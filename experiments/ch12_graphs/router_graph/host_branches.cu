// out = sum over the chosen experts of weight W2 relu(W1 x), one token
//
// bytes   4 kTopK width^2   the weights of the chosen experts: 16.8 MB at width 1024
// flops   4 kTopK width^2
// limit   memory bandwidth: 3.8 us at 4.4 TB/s
// idea    none yet: the host reads the router's choice and launches the kernels of those experts
#include "layer.cuh"

namespace fathom::lab::router_graph {

void host_branches(const Layer& p, StreamRef stream) {
  if (p.width == 0) return;
  launch_router(p, ToMemoryOnly{}, stream);
  FATHOM_CUDA(cudaMemcpyAsync(p.on_host.data(), p.chosen.data(), kTopK * sizeof(int32_t),
                              cudaMemcpyDeviceToHost, stream));
  FATHOM_CUDA(cudaStreamSynchronize(stream));  // the choice is needed to go on: this is the lesson
  for (int place = 0; place < kTopK; ++place) launch_expert(p, place, p.on_host(place), stream);
  launch_combine(p, stream);
}

}  // namespace fathom::lab::router_graph
