// An expert-parallel decode step sends every token to the GPUs of its experts and brings results back, twice
// a layer, with rows so few that latency decides. NCCL needs lengths that the host knows, so it sends as many
// rows as there may be, and kernels around it sort and add. What do kernels save that write into the other
// GPU's memory?
#include "lab/experiment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/rng.h"
#include "cuda/device.h"
#include "exchange.h"

namespace fathom::lab::expert_dispatch_gpu {
namespace {

// Four experts of a token, all different, in the order in which they are drawn: expert e in proportion to
// 1 / (e + 1)^zipf. The hot ones are those of rank 0. (The earliest of exponential arrivals at those rates.)
auto routing(double zipf) {
  return [zipf](int32_t* experts, int64_t n, uint64_t seed) {
    std::array<double, kExperts> arrival{};
    for (int64_t i = 0; i < n; i += kTopK) {
      fill_uniform(arrival.data(), kExperts, seed, 1e-9, 1, i / kTopK * kExperts);
      for (size_t e = 0; e < kExperts; ++e)
        arrival[e] = -std::log(arrival[e]) * std::pow(static_cast<double>(e + 1), zipf);
      std::array<int32_t, kExperts> order{};
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + kTopK, order.end(), [&](int32_t a, int32_t b) {
        return arrival[static_cast<size_t>(a)] < arrival[static_cast<size_t>(b)];
      });
      std::copy_n(order.begin(), kTopK, experts + i);
    }
  };
}

Exchange exchange(Arena& arena, View<const bf16, 2> x, const Fill& experts) {
  const int64_t T = x.extent(0), rows = kRanks * T;
  return {.x       = x,
          .experts = arena.input<int32_t>({T, kTopK}, experts),
          .weights = arena.input<float>({T, kTopK}, Uniform{0.1, 1}),
          .parts   = arena.input<float>({rows, kTopK, kWidth}, Uniform{-1, 1}),
          .rows    = {.sorted     = arena.output<bf16>({rows * kTopK, kWidth}),
                      .offsets    = arena.output<int32_t>({kExpertsOfRank + 1}),
                      .sorted_ids = arena.output<int32_t>({rows * kTopK}),
                      .experts    = arena.output<int32_t>({rows, kTopK}),
                      .weights    = arena.output<float>({rows, kTopK})},
          .out     = arena.output<float>({T, kWidth})};
}

}  // namespace

Dispatch::Dispatch(const Point& at, Arena& arena, const Rank& me)
    : tokens(exchange(arena, arena.input<bf16>({at["tokens"], kWidth}, Uniform{-1, 1}),
                      generate<int32_t>(routing(static_cast<double>(at["zipf"]))))),
      nonce_row(arena.workspace<bf16>({1, kWidth})),
      nonce(exchange(
          arena, View<const bf16, 2>(nonce_row), generate<int32_t>([](int32_t* experts, int64_t, uint64_t) {
            std::copy_n(std::array<int32_t, kTopK>{0, kExpertsOfRank, 1, kExpertsOfRank + 1}.data(), kTopK,
                        experts);
          }))),
      rank(me) {}

void Dispatch::check(Checker& checker, const AllRanks<Dispatch>& ranks) const {
  const int64_t T = tokens.tokens(), me = rank.rank();
  const auto expert = [&](int64_t row, int64_t k) -> int32_t {  // of this rank, or -1
    const int32_t e = ranks[static_cast<int>(row / T)].tokens.experts(row % T, k);
    return e / kExpertsOfRank == me ? e % static_cast<int32_t>(kExpertsOfRank) : -1;
  };
  std::vector<int32_t> offsets, ids;
  for (int32_t e = 0; e < kExpertsOfRank; ++e) {
    offsets.push_back(static_cast<int32_t>(ids.size()));
    for (int64_t id = 0; id < kRanks * T * kTopK; ++id)
      if (expert(id / kTopK, id % kTopK) == e) ids.push_back(static_cast<int32_t>(id));
  }
  offsets.push_back(static_cast<int32_t>(ids.size()));
  const auto row_of = [&](int64_t i) { return ids[static_cast<size_t>(i)] / kTopK; };

  const kernels::DispatchedRows& rows = tokens.rows;
  const auto n                        = static_cast<int64_t>(ids.size());
  checker.values("offsets", rows.offsets, [&](int64_t e) { return offsets[static_cast<size_t>(e)]; });
  checker.values("sorted_ids", View<int32_t, 1>(rows.sorted_ids.data(), {n}),
                 [&](int64_t i) { return ids[static_cast<size_t>(i)]; });
  checker.values("sorted", View<bf16, 2>(rows.sorted.data(), {n, kWidth}), [&](int64_t i, int64_t h) {
    return static_cast<double>(
        static_cast<float>(ranks[static_cast<int>(row_of(i) / T)].tokens.x(row_of(i) % T, h)));
  });
  checker.values("experts", rows.experts, [&](int64_t row, int64_t k) { return expert(row, k); });
  checker.values("weights", rows.weights, [&](int64_t row, int64_t k) {
    return expert(row, k) < 0
               ? 0.0
               : static_cast<double>(ranks[static_cast<int>(row / T)].tokens.weights(row % T, k));
  });
  checker.values("out", tokens.out, [&](int64_t t, int64_t h) {
    // A rank's sum is rounded to bf16, by the same error in each layer.
    Sum sum{.length = kRanks, .accumulate = DType::bf16};
    for (int64_t k = 0; k < kTopK; ++k) {
      const auto owner  = static_cast<int>(tokens.experts(t, k) / kExpertsOfRank);
      const double part = kLayers * static_cast<double>(ranks[owner].tokens.parts(me * T + t, k, h));
      sum.value += part;
      sum.magnitude += std::abs(part);
    }
    return sum;
  });
}

// A byte of the nonce is a number of the row, so that bf16 holds it.
void Dispatch::put_nonce(Context& context) const {
  std::array<bf16, kWidth> row{};
  for (size_t i = 0; i < 8; ++i) row[i] = bf16(static_cast<float>(context.rank->nonce() >> (8 * i) & 0xFF));
  context.rank->device()->to_device(nonce_row.data(), row.data(), nonce_row.bytes());
}

// The first expert of a rank gets the rows of all ranks.
uint64_t Dispatch::nonce_sum(Context& context) const {
  uint64_t sum = 0;
  for (int r = 0; r < context.rank->size(); ++r) {
    std::array<bf16, 8> row{};
    context.rank->device()->to_host(row.data(), &nonce.rows.sorted(r, 0), sizeof row);
    for (size_t i = 0; i < 8; ++i) sum += static_cast<uint64_t>(static_cast<float>(row[i])) << (8 * i);
  }
  return sum;
}

namespace {

std::function<Launch<Dispatch>(const Dispatch&, Context&)> prepared(Call (*prepare)(const Dispatch&,
                                                                                    Context&)) {
  if (!prepare) return nullptr;
  return [prepare](const Dispatch& p, Context& context) -> Launch<Dispatch> { return prepare(p, context); };
}

const Experiment<Dispatch> expert_dispatch_gpu{
    .question =
        "What do dispatch and combine of an expert-parallel decode step cost on two GPUs, by NCCL's "
        "all-to-all "
        "of room for all tokens and by kernels that write into each other's memory?",
    .axes         = {{"tokens", {1, 8, 32, 128, 512}}, {"zipf", {0, 1}}},
    .quick        = {{"tokens", {128}}},
    .check_at     = {{"tokens", {0, 1, 2, 13, 127}}, {"zipf", {0, 1}}},
    .variants     = {{.id         = "nccl_all_to_all",
                      .techniques = {"expert_parallel", "collectives"},
                      .idea       = "room for all tokens both ways; kernels sort rows, and add before and after",
                      .prediction = predict::nothing(),
                      .prepare    = prepared(nccl_all_to_all)},
                     {.id         = "low_latency",
                      .techniques = {"expert_parallel"},
                      .idea       = "one kernel each way; the data say that they are here: one trip, no fence",
                      .prediction = predict::ratio_at_least(2.3),
                      .kind       = Kind::engine,
                      .op         = "kernels/collectives/expert_all_to_all.cu",
                      .prepare    = prepared(low_latency)},
                     {.id         = "simple",
                      .techniques = {"expert_parallel"},
                      .idea       = "a flag for each row, behind a fence",
                      .prediction = predict::ratio_at_least(1.5),
                      .kind       = Kind::engine,
                      .op         = "kernels/collectives/expert_all_to_all.cu",
                      .prepare    = prepared(simple)}},
    .backend      = Backend::cuda,
    .cache        = Cache::hot,
    .sets         = 1,  // a graph holds the addresses it was captured with
    .catalog      = {"moe-004", "moe-005", "distributed-020"},
    .ranks        = kRanks,
    .ranks_as     = RanksAs::devices,
    .shared_bytes = 4096,
};
FATHOM_REGISTER(expert_dispatch_gpu);

}  // namespace

}  // namespace fathom::lab::expert_dispatch_gpu
