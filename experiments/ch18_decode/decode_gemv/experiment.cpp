// With one or a few tokens a step, a product does two flops for each weight it reads: memory's bandwidth
// bounds it. With more rows the CUDA cores cannot keep up with memory, and the tensor cores are needed.
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>

#include "projection.h"

namespace fathom::lab::decode_gemv {
namespace {

using kernels::kTile, kernels::padded;

// As many as make some 120 MB, so that the three sets of inputs are far larger than L2; at most 8.
int64_t matrices_of(int64_t outputs, int64_t inputs) {
  return std::clamp<int64_t>((int64_t{120} << 20) / std::max<int64_t>(1, outputs * inputs * 2), 1, 8);
}

}  // namespace

Projection::Projection(const Point& at, Arena& arena)
    : rows(at["rows"]),
      outputs(at["outputs"]),
      inputs(at["inputs"]),
      matrices(matrices_of(outputs, inputs)),
      x(arena.input<bf16>({matrices, rows, inputs}, Uniform{-1, 1})),
      out(arena.output<float>({matrices, rows, outputs})),
      scratch(arena.workspace<uint8_t>({int64_t{32} << 20})) {
  FATHOM_EXPECT(inputs % kTile == 0, "packed weights have whole tiles of 64 inputs");
  const Weights of{matrices, outputs, inputs};
  both = arena.input<bf16>({of.plain() + of.packed()}, generate<bf16>([of](bf16* to, int64_t, uint64_t seed) {
                             fill_weights(to, of, seed);
                           }));
  w    = {both.data(), {matrices, outputs, inputs}};
  packed = {both.data() + of.plain(), {matrices, padded(outputs) * inputs}};
}

Cost Projection::cost() const {
  return {.read      = x.bytes() + w.bytes(),
          .written   = out.bytes(),
          .flops     = 2.0 * static_cast<double>(rows) * static_cast<double>(w.size()),
          .flop_type = DType::bf16};
}

Sum Projection::expected(int64_t m, int64_t t, int64_t n) const {
  const bf16 *of_x = &x(m, t, 0), *of_w = &w(m, n, 0);
  Sum sum{.length = inputs};
  for (int64_t k = 0; k < inputs; ++k) {
    const double product = static_cast<double>(static_cast<float>(of_x[k])) * static_cast<float>(of_w[k]);
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

namespace {

const Experiment<Projection> projection{
    .question =
        "A decode step's matrix products read each weight once for 1 to 64 rows. What share of memory's "
        "bandwidth do they reach with CUDA cores, with cuBLASLt, and with weights packed for the tensor "
        "cores?",
    .limit = Limit::memory,
    // gpt-oss-20b: queries, keys and values are 5120 x 2880; 4 layers are 118 MB.
    .axes     = {{"rows", {1, 8, 64}}, {"outputs", {5120}}, {"inputs", {2880}}},
    .check_at = {{"rows", {0, 1, 3, 8, 9, 65}}, {"outputs", {64, 72, 320}}, {"inputs", {64, 1088}}},
    .variants =
        {
            {.id         = "warp_per_output",
             .launch     = on_gpu(warp_per_output),
             .techniques = {"vectorization", "warp_shuffle"},
             .idea       = "a warp for each output: 16-byte loads, fp32 multiply-adds, a sum by shuffles",
             .prediction = predict::nothing()},
            {.id         = "cublaslt",
             .techniques = {"tensor_cores"},
             .idea       = "cublasLtMatmul, planned once",
             .prediction = predict::share_at_least(0.55),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu(cublaslt)},
            {.id         = "packed",
             .launch     = on_gpu(packed_product),
             .techniques = {"tensor_cores", "packing", "clusters", "dsmem", "programmatic_dependent_launch"},
             .idea       = "the engine's op: weights from memory straight into tensor-core registers",
             .prediction = predict::share_at_least(0.8),
             .kind       = Kind::engine,
             .op         = "kernels/gemm/linear_gemv.cu",
             .needs      = {machine::Feature::clusters, machine::Feature::wgmma}},
        },
    .backend = Backend::cuda,
};
FATHOM_REGISTER(projection);

}  // namespace
}  // namespace fathom::lab::decode_gemv
