// A sequence too long for one GPU is spread over two. Each needs the keys and values of the other: before it
// begins, or while it works with its own. Under a causal mask the late half has three times the work.
#include "lab/experiment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "cuda/device.h"
#include "ring_attention.h"

namespace fathom::lab::ring_attention_gpu {
namespace {

// In eight sums, which the compiler keeps in vectors.
struct Dot {
  double value, size;  // size: of absolute values
};
Dot dot(const bf16* a, const bf16* b) {
  std::array<double, 8> value{}, size{};
  for (int64_t d = 0; d < kHeadDim; d += 8)
    for (size_t l = 0; l < 8; ++l) {
      const double product = static_cast<double>(static_cast<float>(a[d + static_cast<int64_t>(l)])) *
                             static_cast<double>(static_cast<float>(b[d + static_cast<int64_t>(l)]));
      value[l] += product;
      size[l] += std::abs(product);
    }
  Dot sum{};
  for (size_t l = 0; l < 8; ++l) sum.value += value[l], sum.size += size[l];
  return sum;
}

}  // namespace

// In double, with all scores of a row in memory. Each weight is rounded to bf16 for the tensor cores, and a
// result over some of the keys is rounded once more before the merge: these errors are independent. An
// absolute error of a score is a relative one of its weight: hence 1 + size, in units of bf16's round-off.
void RingAttention::check(Checker& checker, const AllRanks<RingAttention>& ranks) const {
  const auto key   = [&](int64_t j) { return &ranks[static_cast<int>(j / half())].k(j % half(), 0, 0); };
  const auto value = [&](int64_t j) { return &ranks[static_cast<int>(j / half())].v(j % half(), 0, 0); };
  std::vector<double> weight, size;  // of the row and head that were asked for last
  double total  = 0;
  int64_t known = -1;
  checker.values("out", out, [&](int64_t i, int64_t h, int64_t d) {
    const auto seen = static_cast<size_t>(rank.rank() * half() + i + 1);
    if (known != i * kHeads + h) {
      known = i * kHeads + h;
      weight.assign(seen, 0);
      size.assign(seen, 0);
      for (size_t j = 0; j < seen; ++j) {
        const Dot score = dot(&q(i, h, 0), key(static_cast<int64_t>(j)) + h * kHeadDim);
        weight[j]       = static_cast<double>(kScale) * score.value;
        size[j]         = static_cast<double>(kScale) * score.size;
      }
      const double most = *std::max_element(weight.begin(), weight.end());
      total             = 0;
      for (double& w : weight) total += w = std::exp(w - most);
    }
    Sum sum{.accumulate = DType::bf16};
    double squares = 0, absolute = 0;
    for (size_t j = 0; j < seen; ++j) {
      const double of_key =
          static_cast<double>(static_cast<float>(value(static_cast<int64_t>(j))[h * kHeadDim + d]));
      const double term = weight[j] / total * of_key;
      sum.value += term;
      squares += term * term;
      absolute += std::abs(term) * (1 + size[j]);
    }
    sum.magnitude = std::sqrt(2 * squares) +
                    0x1p-16 * std::sqrt(static_cast<double>(seen) + static_cast<double>(kHeadDim)) * absolute;
    return sum;
  });
}

void RingAttention::put_nonce(Context& context) const {
  const std::array<uint64_t, 2> mine = {context.rank->nonce(), 0};
  context.rank->device()->to_device(&nonces(context.rank->rank(), 0), mine.data(), sizeof mine);
}

uint64_t RingAttention::nonce_sum(Context& context) const {
  std::array<uint64_t, 2 * kRanks> all{};
  context.rank->device()->to_host(all.data(), nonces.data(), sizeof all);
  uint64_t sum = 0;
  for (size_t r = 0; r < kRanks; ++r) sum += all[2 * r];
  return sum;
}

namespace {

std::function<Launch<RingAttention>(const RingAttention&, Context&)> prepared(
    Call (*prepare)(const RingAttention&, Context&)) {
  if (!prepare) return nullptr;
  return [prepare](const RingAttention& p, Context& context) -> Launch<RingAttention> {
    return prepare(p, context);
  };
}

const Experiment<RingAttention> ring_attention_gpu{
    .question =
        "Over two GPUs, does a ring hide the exchange of keys and values behind attention, and what does a "
        "balanced order of chunks save under a causal mask?",
    .limit        = Limit::tensor_flops,
    .axes         = {{"tokens", {8192, 32768}}},
    .check_at     = {{"tokens", {0, 4, 52, 516}}},
    .variants     = {{.id         = "all_gather",
                      .techniques = {"context_parallel", "flash_attention", "kv_transfer"},
                      .idea       = "all keys and values on both GPUs, then attention in one launch",
                      .prediction = predict::nothing(),
                      .prepare    = prepared(all_gather),
                      .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
                     {.id         = "ring",
                      .techniques = {"context_parallel", "flash_attention", "kv_transfer", "online_softmax",
                                     "comm_compute_overlap"},
                      .idea       = "attention to own keys while the other's arrive, then to those, then a merge",
                      .prediction = predict::ratio_at_least(1.0),
                      .prepare    = prepared(ring),
                      .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
                     {.id         = "zigzag",
                      .techniques = {"context_parallel", "flash_attention", "kv_transfer", "online_softmax",
                                     "comm_compute_overlap", "load_balancing"},
                      .idea       = "the same with an early and a late chunk on each GPU: even work",
                      .prediction = predict::ratio_at_least(1.25),
                      .prepare    = prepared(zigzag),
                      .needs      = {machine::Feature::tma, machine::Feature::wgmma}}},
    .backend      = Backend::cuda,
    .cache        = Cache::hot,
    .sets         = 1,  // ranks push into memory whose addresses they were told
    .catalog      = {"attention-006", "distributed-014"},
    .ranks        = kRanks,
    .ranks_as     = RanksAs::devices,
    .shared_bytes = 4096,
};
FATHOM_REGISTER(ring_attention_gpu);

}  // namespace
}  // namespace fathom::lab::ring_attention_gpu
