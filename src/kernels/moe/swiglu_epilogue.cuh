// Epilogue of the experts' first layer (kernels/moe/experts.h), for weights in RowOrder::gate_pairs:
//   a(r, u) = g sigmoid(alpha g) (l + 1)
// with gate g = min(W1_gate x + b1, limit) and linear part l = clamp(W1_linear x + b1, -limit, limit) of unit
// u. kernels/gemm/epilogue.cuh says what an epilogue is.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "cuda/bf16_pack.cuh"
#include "cuda/ptx.cuh"

namespace fathom::kernels {

struct SwigluEpilogue {
  bf16* a;  // [rows, units], one row for each token and expert of it; units is the padded number
  int64_t units;
  const float* bias;   // of the expert
  float output_scale;  // PackedExperts::output_scale
  float limit, alpha;

  struct Operands {
    float gate, linear;  // bias
  };
  __device__ Operands read(int p, int) const { return {bias[p], bias[p + 8]}; }

  __device__ float value(float gate, float linear, const Operands& operands) const {
    const float g = fminf(__fmaf_rn(gate, output_scale, operands.gate), limit);
    const float l = fminf(fmaxf(__fmaf_rn(linear, output_scale, operands.linear), -limit), limit);
    return __fdividef(g, 1 + ptx::ex2_approx(-alpha * g * 1.44269504f)) * (l + 1);
  }
  __device__ void operator()(int p, int row, float gate, float linear, const Operands& operands) const {
    store_bf16(a + row * units + p / 16 * 8 + p % 8, value(gate, linear, operands));
  }
  __device__ void operator()(int p, int row, float gate, float linear) const {
    (*this)(p, row, gate, linear, read(p, row));
  }
};

}  // namespace fathom::kernels
