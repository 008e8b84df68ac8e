// A KV cache that is full in bf16 need not turn requests away: old pages can be rounded to FP8, and older
// ones to 4 bits, when memory runs short. What does a decode step over such a mixture take, and what does it
// lose?
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include "cache.h"
#include "experiments/paged_attention_problem.h"
#include "lab/metric.h"

namespace fathom::lab::dynamic_quantized_cache {
namespace {

using kernels::Bf16KvPages, kernels::Fp8KvPages, kernels::Nvfp4KvPages;

constexpr int64_t kAllBytes = kBf16Bytes + kFp8Bytes + kFp4Bytes;

// Different heads of pages, used in turn: generating all of them would take longer than the rest of the run.
constexpr int64_t kDistinct = 61;

// A head of a page in all formats.
struct Head {
  uint8_t *in_bf16, *fp8, *fp4;

  void fill(std::mt19937_64& random, bool same) const {
    std::normal_distribution<float> normal;
    for (int64_t r = 0; r < kPage; ++r)
      for (const bool value : {false, true}) {
        float numbers[kHeadDim];
        for (float& number : numbers) number = static_cast<float>(bf16(normal(random)));
        same ? put_same(r, value, numbers) : put(r, value, numbers);
      }
  }

 private:
  bf16& number(int64_t r, bool value, int64_t d) const {
    return reinterpret_cast<bf16*>(in_bf16)[(value ? Bf16KvPages::kElements : 0) + Bf16KvPages::at(r, d)];
  }
  // Each format is rounded from the one before.
  void put(int64_t r, bool value, float* numbers) const {
    for (int64_t d = 0; d < kHeadDim; ++d) number(r, value, d) = bf16(numbers[d]);
    Fp8KvPages::put(fp8, r, value, numbers);
    for (int64_t d = 0; d < kHeadDim; ++d) numbers[d] = Fp8KvPages::get(fp8, r, value, d);
    Nvfp4KvPages::put(fp4, r, value, numbers);
  }
  // What NVFP4 has, in all. Both kinds of scales are the same bytes, and E4M3 has the numbers of E2M1.
  void put_same(int64_t r, bool value, const float* numbers) const {
    Nvfp4KvPages::put(fp4, r, value, numbers);
    for (int64_t d = 0; d < kHeadDim; ++d) {
      const uint8_t scale = fp4[Nvfp4KvPages::scale_at(r, value, d)];
      const float rounded = Nvfp4KvPages::get(fp4, r, value, d);
      number(r, value, d) = bf16(rounded);
      fp8[Fp8KvPages::at(r, d) + (value ? Fp8KvPages::kCodeBytes : 0)] =
          fp8_e4m3(rounded / Fp8KvPages::scale(scale)).bits;
      fp8[Fp8KvPages::scale_at(r, d) + (value ? Fp8KvPages::kScaleBytes : 0)] = scale;
    }
  }
};

void fill(uint8_t* to, int64_t bytes, uint64_t seed, bool same) {
  const int64_t heads = bytes / kAllBytes;
  const auto head     = [&](int64_t i) {
    return Head{to + i * kBf16Bytes, to + heads * kBf16Bytes + i * kFp8Bytes,
                to + heads * (kBf16Bytes + kFp8Bytes) + i * kFp4Bytes};
  };
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < heads; ++i) {
    const Head one = head(i), first = head(i % kDistinct);
    if (i < kDistinct) {
      one.fill(random, same);
      continue;
    }
    std::memcpy(one.in_bf16, first.in_bf16, kBf16Bytes);
    std::memcpy(one.fp8, first.fp8, kFp8Bytes);
    std::memcpy(one.fp4, first.fp4, kFp4Bytes);
  }
}

}  // namespace

MixedCache::MixedCache(const Point& at, Arena& arena)
    : DecodeRows(at, arena),
      same_numbers(at["same_numbers"] != 0),
      formats(page_formats(pages.extent(1), pages.extent(1) * kBf16Bytes * at["budget"] / 100)),
      memory(arena.input<uint8_t>(
          {pages.size() * kKvHeads * kAllBytes},
          generate<uint8_t>(
              [same = same_numbers](uint8_t* to, int64_t n, uint64_t seed) { fill(to, n, seed, same); }))),
      moved(arena.output<uint8_t>({moved_pages(), kKvHeads * (kFp8Bytes + kFp4Bytes)})) {}

// The bytes of the mixture, for all variants.
Cost MixedCache::cost() const {
  Cost cost = cost_of_reading(0);
  cost.read += q.extent(0) * kKvHeads * formats.bytes();
  return cost;
}

namespace {

paged_attention::RowReference reference(const MixedCache& p, int64_t s, int64_t h) {
  return {&p.q(s, h, 0),
          {p.in_bf16(), p.pages.data() + s * p.pages.extent(1), h / kGroup},
          kScale,
          p.sinks(h),
          p.context - p.reach(),
          p.context - 1};
}

// The magnitude of RowReference's results is, but for sums in fp32, the root of the squares of w(j) v(j). A
// key's error changes w(j), a value's v(j), each by the round-off of 4 bits at most: the tolerance of a
// format.
struct Rounded {
  paged_attention::RowReference row;
  Sum at(int64_t d) const {
    Sum sum        = row.at(d);
    sum.accumulate = DType::fp4_e2m1;
    return sum;
  }
};

}  // namespace

void MixedCache::check(Checker& checker) const {
  if (same_numbers) return check_over(in_bf16(), checker);
  checker.values_in_parallel("out", out,
                             [&, row = std::optional<Rounded>(), at = std::pair<int64_t, int64_t>(-1, -1)](
                                 int64_t s, int64_t h, int64_t d) mutable {
                               if (at != std::pair(s, h)) {
                                 row.emplace(Rounded{reference(*this, s, h)});
                                 at = {s, h};
                               }
                               return row->at(d);
                             });
}

// Errors against attention over the bf16 cache, and of what `requantizing` made anew.
void MixedCache::metrics(CallMetrics& metrics) const {
  if (same_numbers || out.size() == 0) return;
  double squares = 0, errors = 0;
  constexpr int64_t kRows = 16;
  for (int64_t i = 0; i < kRows; ++i) {
    const int64_t s = i * q.extent(0) / kRows, h = i * 5 % kHeads;
    const auto row = reference(*this, s, h);
    for (int64_t d = 0; d < kHeadDim; ++d) {
      const double value = row.at(d).value, error = float(out(s, h, d)) - value;
      squares += value * value;
      errors += error * error;
    }
  }
  metrics["relative_rms_error"] = {std::sqrt(errors / squares), "lower"};

  // Of what moves down, the bytes that are those of the cache in fewer bits: all, where a variant moves
  // pages.
  int64_t right = 0;
  for (int64_t page = 0; page < moved.extent(0); ++page) {
    const uint8_t* const fp8 = &moved(page, 0);
    const uint8_t* const fp4 = fp8 + kKvHeads * kFp8Bytes;
    const auto from          = moves(page);
    for (int64_t head = 0; head < kKvHeads; ++head) {
      const uint8_t* const want_fp8 = in_fp8().strips(pages(0, from.bf16), head);
      const uint8_t* const want_fp4 = in_fp4().strips(pages(0, from.fp8), head);
      for (int64_t i = 0; i < kFp8Bytes; ++i) right += fp8[head * kFp8Bytes + i] == want_fp8[i];
      for (int64_t i = 0; i < kFp4Bytes; ++i) right += fp4[head * kFp4Bytes + i] == want_fp4[i];
    }
  }
  metrics["moved_right"] = {static_cast<double>(right) / static_cast<double>(moved.size()), "higher"};
}

namespace {

const std::vector<machine::Feature> kNeeds = {machine::Feature::tma, machine::Feature::clusters};

const Experiment<MixedCache> dynamic_quantized_cache{
    .question =
        "When memory runs short, old pages of the KV cache are rounded to FP8, then to NVFP4. What does a "
        "decode step over the mixture take, and what does it lose, beside one format for all pages?",
    .limit = Limit::memory,
    // In percent of bf16's bytes: FP8 alone has 53, NVFP4 alone 28. Three formats of 64 x 1024 positions are
    // 243 MB, which the host fills some 60 times a point.
    .axes = {{"budget", {40, 70}},
             {"same_numbers", {0}},
             {"window", {0}},
             {"sequences", {64}},
             {"context", {1024}}},
    // Around pages (64) and tiles (32), and all mixtures of formats that budgets bring: one page in bf16 with
    // none or some in FP8, bf16 and FP8, all in bf16.
    .check_at = {{"budget", {0, 45, 80, 100}},
                 {"same_numbers", {1}},
                 {"sequences", {0, 3}},
                 {"context", {0, 1, 31, 64, 65, 129, 701}}},
    .variants =
        {
            {.id         = "all_bf16",
             .launch     = on_gpu(all_bf16),
             .techniques = {"online_softmax", "paged_kv", "tensor_cores", "multi_stage_pipeline", "dsmem"},
             .idea       = "the engine's op over bf16 pages: what the budget forbids",
             .prediction = predict::share(0.36),
             .needs      = kNeeds},
            {.id         = "all_fp8",
             .launch     = on_gpu(all_fp8),
             .techniques = {"fp8_kv"},
             .idea       = "the engine's op over FP8 pages",
             .prediction = predict::ratio(1.55),
             .kind       = Kind::engine,
             .op         = "kernels/attention/decode_attention.cuh",
             .needs      = kNeeds},
            {.id         = "all_nvfp4",
             .launch     = on_gpu(all_nvfp4),
             .techniques = {"kv_fp4"},
             .idea       = "the engine's op over NVFP4 pages",
             .prediction = predict::ratio(2.45),
             .kind       = Kind::engine,
             .op         = "kernels/attention/decode_attention.cuh",
             .needs      = kNeeds},
            {.id         = "mixed",
             .launch     = on_gpu(mixed),
             .techniques = {"online_softmax", "paged_kv", "tensor_cores", "multi_stage_pipeline", "fp8_kv",
                            "kv_fp4", "dynamic_precision", "memory_pressure"},
             .idea = "the oldest pages in NVFP4, the next in FP8, the newest in bf16: as the budget allows",
             .prediction = predict::ratio(1.8),
             .needs      = kNeeds},
            {.id         = "requantizing",
             .launch     = on_gpu(requantizing),
             .techniques = {"online_softmax", "paged_kv", "tensor_cores", "multi_stage_pipeline", "fp8_kv",
                            "kv_fp4", "dynamic_precision", "memory_pressure"},
             .idea       = "the same, and the pages that a step moves down a format",
             .prediction = predict::ratio(1.65),
             .needs      = kNeeds},
        },
    .backend = Backend::cuda,
    .catalog = {"kv-011"},
    .group   = "kv_formats",
};
FATHOM_REGISTER(dynamic_quantized_cache);

}  // namespace
}  // namespace fathom::lab::dynamic_quantized_cache
