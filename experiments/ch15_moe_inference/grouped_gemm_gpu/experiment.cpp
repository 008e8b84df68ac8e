// One expert's product is too small to fill a GPU, and a loop over experts leaves it to the next one to wait.
// What does the library gain when it gets all experts in one call?
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/rng.h"
#include "cuda/device.h"
#include "grouped_gemm.h"

namespace fathom::lab::grouped_gemm_gpu {
namespace {

// Routers favour some experts: each slot goes to the smaller of two draws, which makes low experts likelier
// than high ones, by up to 63 to 1. Counts are the same for all inputs and belong to another expert each
// time: cuBLAS looks its algorithm up by size, 0.2 ms for a size that it has not seen, and a server has seen
// all.
Generate uneven_offsets(int64_t slots) {
  return generate<int32_t>([slots](int32_t* to, int64_t n, uint64_t seed) {
    constexpr uint64_t kCounts = 15;
    std::vector<int32_t> one(static_cast<size_t>(slots)), other(one.size()), rows(static_cast<size_t>(n - 1));
    fill_integers(one.data(), slots, kCounts, 0, kExperts);
    fill_integers(other.data(), slots, ~kCounts, 0, kExperts);
    for (size_t s = 0; s < one.size(); ++s) ++rows[std::min(one[s], other[s])];
    std::vector<int32_t> keys(rows.size());
    fill_integers(keys.data(), std::ssize(keys), seed, 0, 1 << 30);
    std::vector<size_t> dealt(rows.size());
    std::iota(dealt.begin(), dealt.end(), 0);
    std::ranges::stable_sort(dealt, {}, [&](size_t i) { return keys[i]; });
    to[0] = 0;
    for (size_t e = 0; e < dealt.size(); ++e) to[e + 1] = to[e] + rows[dealt[e]];
  });
}

}  // namespace

GroupedGemm::GroupedGemm(const Point& at, Arena& arena)
    : x(arena.input<bf16>({at["tokens"] * kTopK, at["width"]}, Normal{})),
      offsets(arena.input<int32_t>({kExperts + 1}, uneven_offsets(at["tokens"] * kTopK))),
      w(arena.input<bf16>({kExperts, 2 * at["width"], at["width"]}, Normal{.stddev = 0.02})),
      out(arena.output<bf16>({at["tokens"] * kTopK, 2 * at["width"]})) {}

// Weights count in full: at the timed points nearly every expert has rows.
Cost GroupedGemm::cost() const {
  return {.read      = x.bytes() + offsets.bytes() + w.bytes(),
          .written   = out.bytes(),
          .flops     = 2.0 * static_cast<double>(out.size()) * static_cast<double>(x.extent(1)),
          .flop_type = DType::bf16};
}

void GroupedGemm::check(Checker& checker) const {
  checker.values("out", out, [&](int64_t i, int64_t n) {
    int64_t e = 0;
    while (offsets(e + 1) <= i) ++e;
    Sum sum{.length = x.extent(1)};
    for (int64_t k = 0; k < x.extent(1); ++k) {
      const double term = static_cast<double>(static_cast<float>(x(i, k))) * static_cast<float>(w(e, n, k));
      sum.value += term;
      sum.magnitude += std::abs(term);
    }
    return sum;
  });
}

std::array<int32_t, kExperts + 1> offsets_on_host(const GroupedGemm& p) {
  std::array<int32_t, kExperts + 1> offsets;
  find_device({0})->to_host(offsets.data(), p.offsets.data(), sizeof offsets);
  return offsets;
}

namespace {

const Experiment<GroupedGemm> grouped_gemm{
    .question = "What does cuBLAS gain from one call for the products of all experts, with weights in bf16?",
    .limit    = Limit::tensor_flops,
    // 256, 64 and 1024 rows for an expert on average.
    .axes     = {{"tokens", {2048, 512, 8192}}, {"width", {2880}}},
    .check_at = {{"tokens", {0, 1, 9, 67, 300}}, {"width", {64, 192}}},
    .variants = {{.id         = "one_gemm_each",
                  .techniques = {},
                  .idea       = "cublasGemmEx for each expert that has rows",
                  .prediction = predict::share(0.35),
                  .prepare    = prepared_on_gpu(one_gemm_each),
                  .syncs      = true},  // cuBLAS takes the numbers of rows on the host
                 {.id         = "cublas_grouped",
                  .techniques = {"grouped_experts"},
                  .idea       = "cublasGemmGroupedBatchedEx for all experts",
                  .prediction = predict::ratio(1.6),
                  .kind       = Kind::library,
                  .prepare    = prepared_on_gpu(cublas_grouped),
                  .syncs      = true}},
    .backend  = Backend::cuda,
    .catalog  = {"moe-011"},
    .group    = "grouped_experts",
};
FATHOM_REGISTER(grouped_gemm);

}  // namespace
}  // namespace fathom::lab::grouped_gemm_gpu
