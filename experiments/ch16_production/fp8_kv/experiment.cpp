// A decode step reads the whole cache. Half the bytes should take half the time. How much of that gain
// remains when each number must be converted to bf16 before a tensor core multiplies it?
#include "lab/experiment.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "experiments/paged_attention_problem.h"
#include "pages.h"

namespace fathom::lab::fp8_kv {
namespace {

using kernels::Bf16KvPages;
using kernels::Fp8KvPages;

constexpr int64_t kBothBytes = kTileBytes + Fp8KvPages::kPageBytes;

// Different heads of pages, used in turn: generating all of them would take longer than the rest of the run.
constexpr int64_t kDistinct = 61;

// Normal numbers rounded to FP8, stored in both formats.
void fill(uint8_t* to, int64_t bytes, uint64_t seed) {
  const int64_t heads = bytes / kBothBytes, distinct = std::min(heads, kDistinct);
  uint8_t* const fp8 = to + heads * kTileBytes;
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < distinct; ++i) {
    uint8_t* strips = fp8 + i * Fp8KvPages::kPageBytes;
    bf16* tile      = reinterpret_cast<bf16*>(to + i * kTileBytes);
    for (int64_t r = 0; r < kPage; ++r)
      for (const bool value : {false, true}) {
        float numbers[kHeadDim];
        for (float& number : numbers) number = normal(random);
        Fp8KvPages::put(strips, r, value, numbers);
        for (int64_t d = 0; d < kHeadDim; ++d)
          tile[(value ? Bf16KvPages::kElements : 0) + Bf16KvPages::at(r, d)] =
              bf16(Fp8KvPages::get(strips, r, value, d));
      }
  }
  for (int64_t i = distinct; i < heads; ++i) {
    std::memcpy(to + i * kTileBytes, to + i % distinct * kTileBytes, kTileBytes);
    std::memcpy(fp8 + i * Fp8KvPages::kPageBytes, fp8 + i % distinct * Fp8KvPages::kPageBytes,
                Fp8KvPages::kPageBytes);
  }
}

}  // namespace

Pages::Pages(const Point& at, Arena& arena)
    : DecodeRows(at, arena),
      cache(arena.input<uint8_t>({pages.size() * kKvHeads * kBothBytes}, generate<uint8_t>(fill))) {}

// The bytes of the FP8 cache, for both variants: the least that must be read.
Cost Pages::cost() const { return cost_of_reading(kKvHeads * Fp8KvPages::kPageBytes / kPage); }

void Pages::check(Checker& checker) const { check_over(in_bf16(), checker); }

const Experiment<Pages> fp8_kv{
    .question =
        "A KV cache in FP8 has half the bytes, but its numbers must be converted to bf16 for the tensor "
        "cores. How much faster is a decode step?",
    .limit = Limit::memory,
    // 64 sequences have 537 MB of keys and values in bf16 and 285 MB in FP8; 8 have 67 MB and 36 MB.
    .axes = {{"window", {0}}, {"sequences", {64, 8}}, {"context", {4096}}},
    // Sizes around strips (16), runs (32) and pages (64), and windows that begin anywhere in them.
    .check_at = {{"window", {0, 1, 300}},
                 {"sequences", {0, 1, 3}},
                 {"context", {0, 1, 2, 15, 16, 17, 33, 63, 64, 65, 129, 300, 701}}},
    .variants =
        {
            {.id         = "bf16_pages",
             .launch     = on_gpu(bf16_pages),
             .techniques = {"online_softmax", "paged_kv", "tensor_cores", "multi_stage_pipeline", "dsmem"},
             .idea       = "the engine's op over pages of 16 KiB a head",
             .prediction = predict::share(0.43),
             .needs      = {machine::Feature::tma, machine::Feature::clusters}},
            {.id         = "fp8_pages",
             .launch     = on_gpu(fp8_pages),
             .techniques = {"online_softmax", "paged_kv", "tensor_cores", "multi_stage_pipeline", "dsmem",
                            "fp8_kv"},
             .idea       = "the same op over pages of 8.5 KiB: E4M3 codes, a scale for each 16",
             .prediction = predict::ratio(1.5),
             .kind       = Kind::engine,
             .op         = "kernels/attention/decode_attention.cuh",
             .needs      = {machine::Feature::tma, machine::Feature::clusters}},
        },
    .backend = Backend::cuda,
    .catalog = {"kv-008"},
};
FATHOM_REGISTER(fp8_kv);

}  // namespace fathom::lab::fp8_kv
