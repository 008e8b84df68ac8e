// out(m, t, n) = sum_k x(m, t, k) w(m, n, k)      bf16, sums in fp32
//
// bytes   2 M N K of weights, once, for up to 8 rows
// flops   2 M T N K, by the CUDA cores
// limit   memory bandwidth. H200: 268 MB, 8 matrices of 4096 x 4096, are 59 us at 4.55 TB/s
// idea    none yet: a warp for each output, which reads its weights 16 bytes a lane
#include "warp_gemv.cuh"

namespace fathom::lab::int4_gemv_gpu {
namespace {

struct Bf16Weights {
  View<const bf16, 3> w;

  struct Row {
    const uint4* vectors;
    __device__ Eight eight(int v) const { return eight_of_bf16(vectors + v); }
  };
  __device__ Row row(int matrix, int output) const {
    return {reinterpret_cast<const uint4*>(&w(matrix, output, 0))};
  }
};

}  // namespace

void bf16_weights(const Projection& p, StreamRef stream) {
  launch_warp_gemv(p, Bf16Weights{p.weights.in_bf16(p.memory.data())}, stream);
}

}  // namespace fathom::lab::int4_gemv_gpu
