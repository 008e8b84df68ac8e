// A decode step on several GPUs sums few rows over the ranks, adds them to the residual stream and normalises
// that. The sum waits for the link, and the norm begins with a load of what the sum has just stored. What
// does one kernel gain?
#include "lab/experiment.h"

#include <array>
#include <cmath>

#include "all_reduce_rmsnorm.h"
#include "cuda/device.h"

namespace fathom::lab::all_reduce_rmsnorm_gpu {

void NormedSums::check(Checker& checker, const AllRanks<NormedSums>& ranks) const {
  const int64_t sums  = kSums * (ranks.size() + 1);
  const auto residual = [&](int64_t t, int64_t h) {
    Sum sum{.length = sums};
    for (int q = 0; q < ranks.size(); ++q) {
      sum.value += kSums * static_cast<double>(ranks[q].in(t, h));
      sum.magnitude += kSums * std::abs(static_cast<double>(ranks[q].in(t, h)));
    }
    return sum;
  };
  checker.values("x", x, residual);
  double scale = 0, error = 0;  // of the row that was asked for last
  int64_t known = -1;
  checker.values("y", y, [&](int64_t t, int64_t h) {
    if (known != t) {
      known          = t;
      double squares = 0, magnitudes = 0;
      for (int64_t i = 0; i < kWidth; ++i) {
        const Sum each = residual(t, i);
        squares += each.value * each.value;
        magnitudes += std::abs(each.value) * each.magnitude;
      }
      scale = 1 / std::sqrt(squares / static_cast<double>(kWidth) + static_cast<double>(kEpsilon));
      error = magnitudes / squares;
    }
    // An error of x is one of the row's scale too: half of the relative one of the sum of squares. Six
    // roundings surround that sum: the square, the mean, epsilon, the reciprocal root, two multiplications.
    const Sum of_x      = residual(t, h);
    const double factor = scale * static_cast<double>(weight(h));
    return Sum{.value     = factor * of_x.value,
               .magnitude = factor * (of_x.magnitude + std::abs(of_x.value) * error),
               .length    = sums + kWidth + 6};
  });
}

// A byte of the nonce is a number of the row, so that sums of them are exact.
void NormedSums::put_nonce(Context& context) const {
  std::array<float, kWidth> row{};
  for (size_t i = 0; i < 8; ++i) row[i] = static_cast<float>(context.rank->nonce() >> (8 * i) & 0xFF);
  context.rank->device()->to_device(nonce.data(), row.data(), nonce.bytes());
}

uint64_t NormedSums::nonce_sum(Context& context) const {
  std::array<float, 8> sums{};
  context.rank->device()->to_host(sums.data(), nonces.data(), sizeof sums);
  uint64_t sum = 0;
  for (size_t i = 0; i < 8; ++i) sum += static_cast<uint64_t>(sums[i] / 2) << (8 * i);
  return sum;
}

namespace {

std::function<Launch<NormedSums>(const NormedSums&, Context&)> prepared(Call (*prepare)(const NormedSums&,
                                                                                        Context&)) {
  if (!prepare) return nullptr;
  return
      [prepare](const NormedSums& p, Context& context) -> Launch<NormedSums> { return prepare(p, context); };
}

const Experiment<NormedSums> all_reduce_rmsnorm_gpu{
    .question =
        "What does a decode step on two GPUs gain where one kernel sums its rows over the ranks, adds them "
        "to "
        "the residual stream and normalises that?",
    .axes         = {{"rows", {1, 8, 64, 128}}},
    .check_at     = {{"rows", {0, 1, 2, 33, 34, 127, 129, 257, 1009}}},
    .variants     = {{.id         = "apart",
                      .techniques = {"collectives"},
                      .idea       = "the engine's all-reduce by peer pointers, then its RMSNorm",
                      .prediction = predict::nothing(),
                      .prepare    = prepared(apart)},
                     {.id         = "fused",
                      .techniques = {},
                      .idea       = "one kernel: a row stays in registers from the sum to the norm",
                      .prediction = predict::ratio_at_least(1.1),
                      .kind       = Kind::engine,
                      .op         = "kernels/collectives/all_reduce_rmsnorm.cu",
                      .prepare    = prepared(fused)},
                     {.id         = "nccl_then_rmsnorm",
                      .techniques = {},
                      .idea       = "ncclAllReduce, then the engine's RMSNorm, which adds its sum first",
                      .prediction = predict::ratio_at_least(0.3),
                      .kind       = Kind::library,
                      .prepare    = prepared(nccl_then_rmsnorm)}},
    .backend      = Backend::cuda,
    .cache        = Cache::hot,
    .sets         = 1,  // a graph holds the addresses it was captured with
    .catalog      = {"distributed-001", "distributed-008"},
    .ranks        = 2,
    .ranks_as     = RanksAs::devices,
    .shared_bytes = 4096,
};
FATHOM_REGISTER(all_reduce_rmsnorm_gpu);

}  // namespace

}  // namespace fathom::lab::all_reduce_rmsnorm_gpu
