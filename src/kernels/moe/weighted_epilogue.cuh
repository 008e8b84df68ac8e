// Epilogue of the experts' second layer (kernels/moe/experts.h), weighted by the router:
//   y(r, p) = weight(r) (W2 a + b2)
// The sum over a token's experts is left to add_rmsnorm. kernels/gemm/epilogue.cuh says what an epilogue is.
#pragma once

#include <cstdint>

namespace fathom::kernels {

struct WeightedEpilogue {
  float* y;  // [T top_k, hidden]
  int64_t hidden;
  const float* bias;   // of the expert
  float output_scale;  // PackedExperts::output_scale

  struct Operands {
    float low, high;  // bias
  };
  __device__ Operands read(int p) const {
    return {p < hidden ? bias[p] : 0.0f, p + 8 < hidden ? bias[p + 8] : 0.0f};
  }

  __device__ float value(float sum, float bias_of_row, float weight) const {
    return weight * __fmaf_rn(sum, output_scale, bias_of_row);
  }
  __device__ void operator()(int p, int row, float low, float high, float weight,
                             const Operands& operands) const {
    if (p < hidden) y[row * hidden + p] = value(low, operands.low, weight);
    if (p + 8 < hidden) y[row * hidden + p + 8] = value(high, operands.high, weight);
  }
  __device__ void operator()(int p, int row, float low, float high, float weight) const {
    (*this)(p, row, low, high, weight, read(p));
  }
};

}  // namespace fathom::kernels
