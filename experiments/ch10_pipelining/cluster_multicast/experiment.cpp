// All CTAs need the same keys, and L2 sends them to each. When the tensor cores are faster than that, what
// does one load for several CTAs gain, and is it more than a larger tile gains without a cluster?
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "similarity.h"

namespace fathom::lab::cluster_multicast {

Similarity::Similarity(const Point& at, Arena& arena)
    : queries(arena.input<bf16>({at["queries"], kDims}, Uniform{-1, 1})),
      keys(arena.input<bf16>({at["keys"], kDims}, Uniform{-1, 1})),
      out(arena.output<float>({at["queries"]})) {
  FATHOM_EXPECT(keys.extent(0) > 0, "the largest of no products is not defined");
}

Cost Similarity::cost() const {
  return {.read    = queries.bytes() + keys.bytes(),
          .written = out.bytes(),
          .flops = 2.0 * kDims * static_cast<double>(queries.extent(0)) * static_cast<double>(keys.extent(0)),
          .flop_type = DType::bf16};
}

// A maximum moves by no more than the numbers it is taken of.
Sum Similarity::expected(int64_t i) const {
  Sum best{.value = -std::numeric_limits<double>::infinity(), .length = kDims};
  for (int64_t j = 0; j < keys.extent(0); ++j) {
    double product = 0, magnitude = 0;
    for (int64_t d = 0; d < kDims; ++d) {
      const double term =
          static_cast<double>(static_cast<float>(queries(i, d))) * static_cast<float>(keys(j, d));
      product += term;
      magnitude += std::abs(term);
    }
    best.value     = std::max(best.value, product);
    best.magnitude = std::max(best.magnitude, magnitude);
  }
  return best;
}

namespace {

const std::vector<machine::Feature> kNeeds         = {machine::Feature::tma, machine::Feature::wgmma};
const std::vector<machine::Feature> kNeedsClusters = {machine::Feature::tma, machine::Feature::wgmma,
                                                      machine::Feature::clusters};

const Experiment<Similarity> similarity{
    .question = "What does a tile gain that one CTA of a cluster loads for all of them?",
    .limit    = Limit::tensor_flops,
    .axes     = {{"keys", {4096}}, {"queries", {131072}}},
    // Tiles of 128 keys, of which a ring has 3; CTAs of 64 and 128 queries, clusters of up to 256.
    .check_at = {{"keys", {1, 31, 32, 127, 128, 129, 600}}, {"queries", {0, 1, 63, 64, 65, 127, 257}}},
    .variants =
        {
            {.id         = "each_for_itself",
             .launch     = on_gpu(each_for_itself),
             .techniques = {"tensor_cores", "tma_pipeline", "multi_stage_pipeline", "warp_specialization"},
             .idea       = "every CTA of 64 queries loads every tile of keys",
             .prediction = predict::share(0.35),
             .needs      = kNeeds},
            {.id         = "larger_tile",
             .launch     = on_gpu(larger_tile),
             .techniques = {"tensor_cores", "tma_pipeline", "multi_stage_pipeline", "warp_specialization",
                            "register_blocking"},
             .idea       = "no cluster, but CTAs of 128 queries: half as many loads",
             .prediction = predict::ratio(1.6),
             .needs      = kNeeds},
            {.id         = "multicast_2",
             .launch     = on_gpu(multicast_2),
             .techniques = {"tensor_cores", "tma_pipeline", "multi_stage_pipeline", "warp_specialization",
                            "clusters", "tma_multicast"},
             .idea       = "two CTAs load half a tile each, for both",
             .prediction = predict::ratio(1.6),
             .needs      = kNeedsClusters},
            {.id         = "multicast_4",
             .launch     = on_gpu(multicast_4),
             .techniques = {"tensor_cores", "tma_pipeline", "multi_stage_pipeline", "warp_specialization",
                            "clusters", "tma_multicast"},
             .idea       = "four CTAs load a quarter of a tile each, for all",
             .prediction = predict::ratio(1.7),
             .needs      = kNeedsClusters},
            {.id         = "multicast_2_larger_tile",
             .launch     = on_gpu(multicast_2_larger_tile),
             .techniques = {"tensor_cores", "tma_pipeline", "multi_stage_pipeline", "warp_specialization",
                            "register_blocking", "clusters", "tma_multicast"},
             .idea       = "both: 128 queries a CTA, two CTAs a cluster",
             .prediction = predict::ratio(1.8),
             .needs      = kNeedsClusters},
        },
    .backend = Backend::cuda,
    .catalog = {"pipeline-016", "usecase-011"},
};
FATHOM_REGISTER(similarity);

}  // namespace
}  // namespace fathom::lab::cluster_multicast
