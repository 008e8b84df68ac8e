// Programs to look at: `fathom compile explain mlp`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compile/tensor.h"

namespace fathom::compile {

// The dense half of a transformer layer: x + down(swiglu(up(norm(x)))), as gpt-oss defines SwiGLU, clamped.
struct Mlp {
  Tensor norm;         // [D]
  Tensor up, up_bias;  // [2 I, D] with gate and up in alternate rows, [2 I], bf16
  Tensor down;         // [D, I], bf16
};
Tensor mlp(const Tensor& x, const Mlp& w);

// A layer's entry: what the residual stream becomes, and its norm.
struct NormedResidual {
  Tensor sum, y;
};
NormedResidual rmsnorm_residual(const Tensor& x, const Tensor& residual, const Tensor& weight);

// A norm whose result a second tensor gates, as Mamba-2 defines it: rms_norm(x) * silu(z).
Tensor gated_norm(const Tensor& x, const Tensor& z, const Tensor& weight);

struct NamedProgram {
  std::string_view name, what;
  Graph (*graph)();
};
const std::vector<NamedProgram>& programs();

}  // namespace fathom::compile
