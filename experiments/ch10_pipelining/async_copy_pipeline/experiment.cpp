// A loop over tiles can be pipelined in three ways: by cp.async groups and barriers of the block, by
// cuda::pipeline, and by mbarriers with a producer warp. What do they gain over plain loads, and does it
// matter which one is taken?
#include "lab/experiment.h"

#include <cmath>

#include "library.h"
#include "lora_shrink.h"

namespace fathom::lab::async_copy_pipeline {

LoraShrink::LoraShrink(const Point& at, Arena& arena)
    : stages(at["stages"]),
      x(arena.input<float>({at["tokens"], at["width"]}, Uniform{-1, 1})),
      a(arena.input<float>({at["width"], kRank}, Uniform{-1, 1})),
      out(arena.output<float>({at["tokens"], kRank})) {
  FATHOM_EXPECT(stages >= kFewestStages && stages <= kMostStages, "a pipeline has 2, 3 or 4 stages");
  FATHOM_EXPECT(at["width"] > 0 && at["width"] % 4 == 0, "a token is copied in vectors of 4 numbers");
  FATHOM_EXPECT(at["tokens"] <= INT32_MAX / 2 && at["width"] <= 1 << 20, "the kernels count in 32 bits");
}

Cost LoraShrink::cost() const {
  return {.read    = x.bytes() + a.bytes(),
          .written = out.bytes(),
          .flops   = 2.0 * kRank * static_cast<double>(x.size())};
}

Sum LoraShrink::expected(int64_t t, int64_t r) const {
  Sum sum{.length = x.extent(1)};
  for (int64_t d = 0; d < x.extent(1); ++d) {
    const double product = static_cast<double>(x(t, d)) * a(d, r);
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

namespace {

const Experiment<LoraShrink> shrink{
    .question =
        "What does a pipeline of asynchronous copies gain over plain loads and barriers, and does it matter "
        "whether it is built from cp.async groups, cuda::pipeline or mbarriers?",
    .limit = Limit::memory,
    .axes  = {{"stages", {4, 2, 3}}, {"width", {1024}}, {"tokens", {262144}}},
    // Steps of 32: one, fewer than stages, and enough for every ring to wrap. Tiles of 128 tokens.
    .check_at = {{"stages", {2, 3, 4}},
                 {"width", {4, 32, 36, 124, 512}},
                 {"tokens", {0, 1, 127, 128, 129, 331}}},
    .variants = {{.id         = "plain",
                  .launch     = on_gpu(plain),
                  .techniques = {"tiling_in_shared_memory"},
                  .idea       = "load into registers, store to shared memory, barrier, multiply, barrier",
                  .prediction = predict::share(0.8)},
                 {.id         = "software_pipeline",
                  .launch     = on_gpu(software_pipeline),
                  .techniques = {"tiling_in_shared_memory", "async_copy", "multi_stage_pipeline",
                                 "software_pipelining"},
                  .idea       = "cp.async groups: prologue, steady state, epilogue",
                  .prediction = predict::ratio(1.12)},
                 {.id         = "cuda_pipeline",
                  .launch     = on_gpu(cuda_pipeline),
                  .techniques = {"tiling_in_shared_memory", "async_copy", "multi_stage_pipeline"},
                  .idea       = "cuda::pipeline: acquire, memcpy_async, commit; wait, release",
                  .prediction = predict::ratio(1.08)},
                 {.id         = "mbarrier_ring",
                  .launch     = on_gpu(mbarrier_ring),
                  .techniques = {"tiling_in_shared_memory", "tma_pipeline", "multi_stage_pipeline",
                                 "warp_specialization"},
                  .idea       = "full and empty mbarriers, a producer warp, TMA",
                  .prediction = predict::ratio(1.15),
                  .needs      = {machine::Feature::tma}},
                 {.id         = "cublas",
                  .idea       = "cublasSgemm",
                  .prediction = predict::share(0.5),
                  .kind       = Kind::library,
                  .prepare    = prepared_on_gpu(library)}},
    .backend  = Backend::cuda,
    .catalog  = {"pipeline-005", "pipeline-007"},
};
FATHOM_REGISTER(shrink);

}  // namespace
}  // namespace fathom::lab::async_copy_pipeline
