// A decode step's product reads its weights once and does little else. In front of it stand two kernels that
// touch some KB and take as long as a launch takes. What does it gain to fuse them, and what hides the rest?
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>

#include "layers.h"

namespace fathom::lab::norm_quantize_matvec {

Layers::Layers(const Point& at, Arena& arena)
    : x(arena.input<bf16>({at["layers"], at["rows"], at["inputs"]}, Normal{})),
      gamma(arena.input<bf16>({at["layers"], at["inputs"]}, Uniform{0.5, 1.5})),
      w(arena.input<fp8_e4m3>({at["layers"], at["outputs"], at["inputs"]}, Normal{0, 16})),
      row_scales(arena.input<float>({at["layers"], at["outputs"]}, Uniform{0.0005, 0.002})),
      out(arena.output<float>({at["layers"], at["rows"], at["outputs"]})),
      y(arena.workspace<bf16>({at["rows"], at["inputs"]})),
      codes(arena.workspace<fp8_e4m3>({at["rows"], at["inputs"]})),
      scales(arena.workspace<float>({at["rows"]})) {
  FATHOM_EXPECT(at["rows"] <= kMaxRows && at["inputs"] % 16 == 0 && at["outputs"] % 16 == 0,
                "at most 8 rows; inputs and outputs are multiples of 16");
}

Cost Layers::cost() const {
  return {.read      = w.bytes() + row_scales.bytes() + x.bytes() + gamma.bytes(),
          .written   = out.bytes(),
          .flops     = 2.0 * static_cast<double>(w.size()) * static_cast<double>(x.extent(1)),
          .flop_type = DType::fp8_e4m3};
}

// The products of normalised numbers that nobody rounded; rounding to e4m3 is by at most 2^-4 of a number,
// and independent, so a sum's error grows as the root of its products' squares.
Sum Layers::expected(int64_t l, int64_t t, int64_t n) const {
  double of_x = 0, value = 0, squares = 0;
  for (int64_t k = 0; k < x.extent(2); ++k) {
    const double v = float(x(l, t, k)), product = v * float(gamma(l, k)) * float(w(l, n, k));
    of_x += v * v;
    value += product;
    squares += product * product;
  }
  const double factor = row_scales(l, n) / std::sqrt(of_x / static_cast<double>(x.extent(2)) + kEpsilon);
  return {.value      = factor * value,
          .magnitude  = factor * std::sqrt(squares),
          .length     = 1,
          .accumulate = DType::fp8_e4m3};
}

namespace {

const std::vector<machine::Feature> kNeeds = {machine::Feature::tma};  // of sm_90: e4m3, dependent launches

const Experiment<Layers> norm_quantize_matvec{
    .question =
        "RMSNorm, quantisation to FP8 and a decode step's product: what does it gain to make one kernel "
        "of three?",
    .limit = Limit::memory,
    // Wqkv of gpt-oss-20b; 8 layers are 118 MB, more than L2 holds.
    .axes = {{"rows", {1, 8}}, {"inputs", {2880}}, {"outputs", {5120}}, {"layers", {8}}},
    // Around a step of 64 and the 512 of a CTA's warps; rows of codes that are whole multiples of 128 bytes.
    .check_at = {{"rows", {0, 1, 2, 3, 8}},
                 {"inputs", {16, 64, 144, 512, 1040, 2880, 4096}},
                 {"outputs", {16, 144}},
                 {"layers", {2}}},
    .variants =
        {
            {.id         = "three_kernels",
             .launch     = on_gpu(three_kernels),
             .techniques = {"fp8", "tensor_cores"},
             .idea       = "RMSNorm to bf16, the op that quantises rows, the product: a launch each",
             .prediction = predict::share(0.45),
             .needs      = kNeeds},
            {.id         = "two_kernels",
             .launch     = on_gpu(two_kernels),
             .techniques = {"fp8", "tensor_cores", "kernel_fusion"},
             .idea       = "norm and quantisation in one kernel",
             .prediction = predict::ratio(1.25),
             .needs      = kNeeds},
            {.id         = "fused",
             .launch     = on_gpu(fused),
             .techniques = {"fp8", "tensor_cores", "kernel_fusion", "fused_norm_quant"},
             .idea       = "one kernel: every CTA normalises and quantises all rows for itself",
             .prediction = predict::ratio(1.35),
             .needs      = kNeeds},
            {.id         = "weights_first",
             .launch     = on_gpu(weights_first),
             .techniques = {"fp8", "tensor_cores", "kernel_fusion", "fused_norm_quant", "latency_hiding"},
             .idea       = "the same; a CTA asks for its weights before it normalises",
             .prediction = predict::ratio(1.6),
             .needs      = kNeeds},
            {.id         = "dependent_launch",
             .launch     = on_gpu(dependent_launch),
             .techniques = {"fp8", "tensor_cores", "kernel_fusion", "fused_norm_quant", "latency_hiding",
                            "programmatic_dependent_launch"},
             .idea       = "the same; a layer's weights are asked for while the layer before ends",
             .prediction = predict::ratio(1.9),
             .needs      = kNeeds},
        },
    .backend = Backend::cuda,
    .catalog = {"quant-011"},
    .group   = "rmsnorm",
};
FATHOM_REGISTER(norm_quantize_matvec);

}  // namespace
}  // namespace fathom::lab::norm_quantize_matvec
