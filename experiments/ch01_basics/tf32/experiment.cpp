// fp32 has 23 bits of mantissa; tensor cores multiply tf32 numbers of 10. One argument of a call allows this:
// the numbers in memory stay fp32, and the low bits are ignored. What does it gain, and what does it cost?
#include "lab/experiment.h"

#include <cmath>

#include "gemm.h"

namespace fathom::lab::tf32 {

Gemm::Gemm(const Point& at, Arena& arena)
    : n(at["n"]),
      a(arena.input<float>({n, n}, Uniform{-1, 1})),
      b(arena.input<float>({n, n}, Uniform{-1, 1})),
      out(arena.output<float>({n, n})) {}

Cost Gemm::cost() const {
  return {.read    = a.bytes() + b.bytes(),
          .written = out.bytes(),
          .flops   = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n)};
}

// tf32's error, not the sum's: each of the two factors of a product is rounded to 11 bits of significand, as
// many as fp16 has. The accumulation in fp32 adds less than a hundredth of that.
Sum Gemm::expected(int64_t i, int64_t j) const {
  Sum sum{.length = 2, .accumulate = DType::fp16};
  for (int64_t k = 0; k < n; ++k) {
    const double product = static_cast<double>(a(i, k)) * b(k, j);
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

namespace {

const Experiment<Gemm> gemm{
    .question = "What does an fp32 matrix product gain from tf32 tensor cores, by one argument of the call?",
    .limit    = Limit::tensor_flops,
    // 4096: 137 GFLOP. 1024: 2.1 GFLOP, too few blocks to fill the GPU for long.
    .axes     = {{"n", {4096, 1024}}},
    .check_at = {{"n", {0, 1, 7, 8, 31, 64, 129}}},
    .variants = {{.id         = "cuda_cores",
                  .techniques = {},
                  .idea       = "cublasGemmEx, products in fp32",
                  .prediction = predict::share(0.13),
                  .prepare    = prepared_on_gpu(cuda_cores)},
                 {.id         = "tensor_cores",
                  .techniques = {"tf32"},
                  .idea       = "the same call, allowed to multiply in tf32",
                  .prediction = predict::ratio_at_least(6),
                  .prepare    = prepared_on_gpu(tensor_cores)}},
    .backend  = Backend::cuda,
    .catalog  = {"harness-012", "quant-001"},
};
FATHOM_REGISTER(gemm);

}  // namespace
}  // namespace fathom::lab::tf32
