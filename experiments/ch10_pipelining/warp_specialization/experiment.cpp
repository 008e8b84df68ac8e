// A kernel loads, multiplies and stores. When every warp does everything, all wait for all at each step. What
// is it worth to give each of the three to warps of their own?
#include "lab/experiment.h"

#include <cmath>

#include "router.h"

namespace fathom::lab::warp_specialization {

Router::Router(const Point& at, Arena& arena)
    : num_consumer_groups(at["num_consumer_groups"]),
      num_buffers(at["num_buffers"]),
      x(arena.input<bf16>({at["tokens"], at["width"]}, Uniform{-1, 1})),
      w(arena.input<bf16>({kExperts, at["width"]}, Uniform{-1, 1})),
      out(arena.output<bf16>({at["tokens"], kExperts})),
      workspace(arena.workspace<uint8_t>({int64_t{32} << 20})) {
  FATHOM_EXPECT(num_consumer_groups >= 1 && num_consumer_groups <= kMaxGroups, "1 to 3 consumer groups");
  FATHOM_EXPECT(num_buffers >= 1 && num_buffers <= kMaxBuffers, "1 to 6 buffers");
  const int64_t stage = 8192 * num_consumer_groups + 16384, logits = 16384 * num_consumer_groups;
  FATHOM_EXPECT(1024 + num_buffers * stage + logits <= 227 * 1024,
                "the buffers do not fit into shared memory: take fewer of them, or fewer consumer groups");
  FATHOM_EXPECT(at["width"] > 0 && at["width"] % 8 == 0, "TMA reads rows of a multiple of 16 bytes");
  FATHOM_EXPECT(at["tokens"] <= INT32_MAX / 2, "the kernels count in 32 bits");
}

Cost Router::cost() const {
  return {.read      = x.bytes() + w.bytes(),
          .written   = out.bytes(),
          .flops     = 2.0 * kExperts * static_cast<double>(x.size()),
          .flop_type = DType::bf16};
}

Sum Router::expected(int64_t t, int64_t e) const {
  Sum sum{.length = x.extent(1)};
  for (int64_t d = 0; d < x.extent(1); ++d) {
    const double term = static_cast<double>(static_cast<float>(x(t, d))) * static_cast<float>(w(e, d));
    sum.value += term;
    sum.magnitude += std::abs(term);
  }
  return sum;
}

namespace {

const std::vector<machine::Feature> kNeeds = {machine::Feature::tma, machine::Feature::wgmma};

const Experiment<Router> router{
    .question = "What is it worth to give loading, computing and storing to warps of their own?",
    .limit    = Limit::memory,
    // 2880: the width of gpt-oss. 65536 tokens are 512 tiles of 128.
    .axes = {{"num_consumer_groups", {2, 1, 3}},
             {"num_buffers", {4, 2}},
             {"width", {2880}},
             {"tokens", {65536}}},
    // Steps of 64: less than one, one and a bit, more than any ring has buffers. 17000 tokens: with 1 group
    // each of 132 multiprocessors has two tiles or three.
    .check_at = {{"num_consumer_groups", {1, 2, 3}},
                 {"num_buffers", {1, 4}},
                 {"width", {8, 72, 520}},
                 {"tokens", {0, 1, 63, 64, 65, 193, 17000}}},
    .variants =
        {
            {.id         = "single_buffer",
             .launch     = on_gpu(single_buffer),
             .techniques = {"tensor_cores", "tma_pipeline"},
             .idea       = "all warps load, wait, multiply, meet; other CTAs fill the gaps",
             .prediction = predict::share(0.65),
             .needs      = kNeeds},
            {.id         = "multi_buffer",
             .launch     = on_gpu(multi_buffer),
             .techniques = {"tensor_cores", "tma_pipeline", "multi_stage_pipeline"},
             .idea       = "later steps are on their way; all warps still meet at each step",
             .prediction = predict::ratio_at_least(1.1),
             .needs      = kNeeds},
            {.id         = "producer_consumer",
             .launch     = on_gpu(producer_consumer),
             .techniques = {"tensor_cores", "tma_pipeline", "multi_stage_pipeline", "warp_specialization"},
             .idea       = "a warp of its own loads; warps leave a stage at their own pace",
             .prediction = predict::ratio_at_least(1.15),
             .needs      = kNeeds},
            {.id         = "loader_compute_storer",
             .launch     = on_gpu(loader_compute_storer),
             .techniques = {"tensor_cores", "tma_pipeline", "multi_stage_pipeline", "warp_specialization",
                            "persistent_kernel"},
             .idea       = "resident CTAs: the next tile is loaded while the last one's logits are stored",
             .prediction = predict::ratio_at_least(1.25),
             .needs      = kNeeds},
            {.id         = "library",
             .idea       = "cuBLASLt",
             .prediction = predict::share(0.85),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu(library)},
        },
    .backend = Backend::cuda,
    .catalog = {"pipeline-002", "pipeline-008", "usecase-012"},
};
FATHOM_REGISTER(router);

}  // namespace
}  // namespace fathom::lab::warp_specialization
