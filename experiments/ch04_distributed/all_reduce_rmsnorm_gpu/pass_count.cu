#include "cuda/check.h"
#include "step_graph.h"

namespace fathom::lab::all_reduce_rmsnorm_gpu {
namespace {

__global__ void count_kernel(int32_t* to) { ++*to; }

}  // namespace

void count(View<int32_t, 1> to, StreamRef stream) {
  count_kernel<<<1, 1, 0, stream>>>(to.data());
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::all_reduce_rmsnorm_gpu
