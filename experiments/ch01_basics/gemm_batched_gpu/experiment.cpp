// Every launch costs microseconds. A product of 32 x 32 matrices takes far less and keeps one of 132
// multiprocessors busy. What does one launch for 512 of them gain?
#include "lab/experiment.h"

#include <cmath>

#include "gemm_batched.h"

namespace fathom::lab::gemm_batched_gpu {

GemmBatched::GemmBatched(const Point& at, Arena& arena)
    : batch(at["batch"]),
      size(at["size"]),
      a(arena.input<float>({batch, size, size}, Uniform{-1, 1})),
      b(arena.input<float>({batch, size, size}, Uniform{-1, 1})),
      out(arena.output<float>({batch, size, size})) {}

Cost GemmBatched::cost() const {
  return {.read    = a.bytes() + b.bytes(),
          .written = out.bytes(),
          .flops   = 2.0 * static_cast<double>(batch * size * size * size)};
}

Sum GemmBatched::expected(int64_t p, int64_t i, int64_t j) const {
  Sum sum{.length = size};
  for (int64_t k = 0; k < size; ++k) {
    const double product = static_cast<double>(a(p, i, k)) * b(p, k, j);
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

namespace {

const Experiment<GemmBatched> gemm_batched{
    .question = "What do many small matrix products on a GPU gain when they are handed over as one batch?",
    .limit    = Limit::flops,
    // 256: 17 GFLOP, each product fills a part of the GPU. 32: the batch of gemm_batched_cpu, 34 MFLOP.
    .axes     = {{"size", {256, 32}}, {"batch", {512}}},
    .check_at = {{"size", {0, 1, 7, 16, 31, 32, 33, 64}}, {"batch", {0, 1, 5}}},
    .variants = {{.id         = "one_by_one",
                  .techniques = {},
                  .idea       = "a loop that calls cublasSgemm for each",
                  .prediction = predict::share(0.05),
                  .prepare    = prepared_on_gpu(one_by_one),
                  .syncs      = true},  // the launches are the lesson
                 {.id         = "strided_batched",
                  .techniques = {"batching"},
                  .idea       = "one call of cublasSgemmStridedBatched",
                  .prediction = predict::ratio_at_least(10),
                  .prepare    = prepared_on_gpu(strided_batched),
                  .syncs      = true}},
    .backend  = Backend::cuda,
    .catalog  = {"harness-014"},
    .group    = "gemm_batched",
};
FATHOM_REGISTER(gemm_batched);

}  // namespace
}  // namespace fathom::lab::gemm_batched_gpu
