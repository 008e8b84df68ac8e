#include "compile/programs.h"

namespace fathom::compile {
namespace {

constexpr double kEps = 1e-5;

Graph mlp_graph() {
  constexpr int64_t kHidden = 256, kIntermediate = 224;
  Program p("mlp");
  const Extent T = p.symbol({.name = "T", .min = 1, .max = 65536});
  const Tensor x = p.input("x", {T, kHidden});
  const Mlp w{.norm    = p.input("norm", {kHidden}),
              .up      = p.input("up", {2 * kIntermediate, kHidden}, DType::bf16),
              .up_bias = p.input("up_bias", {2 * kIntermediate}, DType::bf16),
              .down    = p.input("down", {kHidden, kIntermediate}, DType::bf16)};
  p.output("y", mlp(x, w));
  return p.graph();
}

Graph rmsnorm_residual_graph() {
  Program p("rmsnorm_residual");
  const Extent T = p.symbol({.name = "T", .min = 1, .max = 65536});
  const Tensor x = p.input("x", {T, 2880}), residual = p.input("residual", {T, 2880});
  const auto [sum, y] = rmsnorm_residual(x, residual, p.input("weight", {2880}));
  p.output("sum", sum);
  p.output("y", y);
  return p.graph();
}

Graph gated_norm_graph() {
  Program p("gated_norm");
  const Extent T = p.symbol({.name = "T", .min = 1, .max = 65536});
  const Tensor x = p.input("x", {T, 2048}), z = p.input("z", {T, 2048});
  p.output("y", gated_norm(x, z, p.input("weight", {2048})));
  return p.graph();
}

Graph softmax_graph() {
  Program p("softmax");
  const Extent T = p.symbol({.name = "T", .min = 1, .max = 65536});
  const Extent V = p.symbol({.name = "V", .min = 1, .max = 16384});
  const Tensor x = p.input("x", {T, V});
  const Tensor e = exp(x - reduce_max(x, {-1}, Keep::yes));
  p.output("y", e / sum(e, {-1}, Keep::yes));
  return p.graph();
}

}  // namespace

Tensor mlp(const Tensor& x, const Mlp& w) {
  const Tensor h        = rms_norm(x, w.norm, kEps).to(DType::bf16);
  const auto [gate, up] = unzip(matmul(h, w.up) + w.up_bias.to(DType::fp32));
  const Tensor limited  = min(gate, 7);
  const Tensor a        = limited * sigmoid(1.702 * limited) * (clamp(up, -7, 7) + 1);
  return x + matmul(a.to(DType::bf16), w.down);
}

NormedResidual rmsnorm_residual(const Tensor& x, const Tensor& residual, const Tensor& weight) {
  const Tensor sum = x + residual;
  return {sum, rms_norm(sum, weight, kEps)};
}

Tensor gated_norm(const Tensor& x, const Tensor& z, const Tensor& weight) {
  return rms_norm(x, weight, kEps) * (z * sigmoid(z));
}

const std::vector<NamedProgram>& programs() {
  static const std::vector<NamedProgram> programs = {
      {"mlp", "norm, two matmuls and a clamped SwiGLU, with the residual", mlp_graph},
      {"rmsnorm_residual", "residual addition and RMSNorm, rows of 2880", rmsnorm_residual_graph},
      {"gated_norm", "RMSNorm times SiLU of a gate, rows of 2048", gated_norm_graph},
      {"softmax", "softmax over rows of symbolic length", softmax_graph},
  };
  return programs;
}

}  // namespace fathom::compile
