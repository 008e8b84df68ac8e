// Sharded weights are gathered while the layer before is being multiplied. NCCL's kernels take
// multiprocessors from the product. Copy engines do not: what do they gain, and from which size on?
#include "lab/experiment.h"

#include <array>

#include "cuda/device.h"
#include "sharded_layers.h"

namespace fathom::lab::copy_engine_collectives_gpu {

void ShardedLayers::check(Checker& checker, const AllRanks<ShardedLayers>& ranks) const {
  const auto weight = [&](int64_t l, int64_t o, int64_t i) {
    const ShardedLayers& owner = ranks[static_cast<int>(o / shard_rows())];
    return static_cast<double>(static_cast<float>(owner.shards(l, o % shard_rows(), i)));
  };
  checker.values("weights", weights, weight);
  checker.values("y", y, [&](int64_t l, int64_t t, int64_t o) {
    Sum sum{.length = x.extent(1)};
    for (int64_t i = 0; i < x.extent(1); ++i) {
      const double term = static_cast<double>(static_cast<float>(x(t, i))) * weight(l, o, i);
      sum.value += term;
      sum.magnitude += std::abs(term);
    }
    return sum;
  });
}

void ShardedLayers::put_nonce(Context& context) const {
  const std::array<uint64_t, 2> mine = {context.rank->nonce(), 0};
  context.rank->device()->to_device(&nonces(context.rank->rank(), 0), mine.data(), sizeof mine);
  place_own_rows(*this, context.stream);
}

uint64_t ShardedLayers::nonce_sum(Context& context) const {
  std::array<uint64_t, 2 * kRanks> all{};
  context.rank->device()->to_host(all.data(), nonces.data(), sizeof all);
  uint64_t sum = 0;
  for (size_t r = 0; r < kRanks; ++r) sum += all[2 * r];
  return sum;
}

namespace {

std::function<Launch<ShardedLayers>(const ShardedLayers&, Context&)> prepared(
    Call (*prepare)(const ShardedLayers&, Context&)) {
  if (!prepare) return nullptr;
  return [prepare](const ShardedLayers& p, Context& context) -> Launch<ShardedLayers> {
    return prepare(p, context);
  };
}

const Experiment<ShardedLayers> copy_engine_collectives_gpu{
    .question =
        "What does it gain to gather sharded weights over two GPUs beside the products, by NCCL's kernels, "
        "by a kernel that stores into the other GPU's memory, and by copy engines?",
    .limit        = Limit::tensor_flops,
    .axes         = {{"width", {8192, 2048}}, {"tokens", {2048, 512, 0}}},
    .check_at     = {{"width", {16, 48}}, {"tokens", {0, 8, 200}}},
    .variants     = {{.id         = "nccl_in_turn",
                      .techniques = {"collectives"},
                      .idea       = "ncclAllGather of a layer's weights, then its product, on one stream",
                      .prediction = predict::nothing(),
                      .prepare    = prepared(nccl_in_turn)},
                     {.id         = "nccl_beside",
                      .techniques = {"collectives", "comm_compute_overlap", "streams"},
                      .idea       = "the gathers run ahead on a second stream",
                      .prediction = predict::ratio_at_least(0.95),
                      .prepare    = prepared(nccl_beside)},
                     {.id         = "nccl_4_ctas",
                      .techniques = {"collectives", "comm_compute_overlap", "collective_tuning", "streams"},
                      .idea       = "the same, by kernels of at most four thread blocks",
                      .prediction = predict::ratio_at_least(0.35),
                      .prepare    = prepared(nccl_4_ctas)},
                     {.id         = "peer_stores",
                      .techniques = {"comm_compute_overlap", "symmetric_memory", "streams"},
                      .idea       = "a kernel of 16 thread blocks stores through the other GPU's pointers",
                      .prediction = predict::ratio_at_least(1.1),
                      .prepare    = prepared(peer_stores)},
                     {.id         = "copy_engines",
                      .techniques = {"comm_compute_overlap", "symmetric_memory", "streams"},
                      .idea       = "copies by the copy engines, signals by the stream: no multiprocessor",
                      .prediction = predict::ratio_at_least(1.15),
                      .prepare    = prepared(copy_engines)}},
    .backend      = Backend::cuda,
    .cache        = Cache::hot,
    .sets         = 1,  // ranks push into memory whose addresses they were told
    .catalog      = {"usecase-007", "distributed-004", "memory-003"},
    .ranks        = kRanks,
    .ranks_as     = RanksAs::devices,
    .shared_bytes = 4096,
};
FATHOM_REGISTER(copy_engine_collectives_gpu);

}  // namespace
}  // namespace fathom::lab::copy_engine_collectives_gpu
