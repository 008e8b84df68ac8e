// A decode step reads the whole cache. 4 bits are little more than a quarter of bf16's bytes. How much of
// that is left of a step's time when each number must become bf16 before a tensor core multiplies it?
#include "lab/experiment.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "experiments/paged_attention_problem.h"
#include "pages.h"

namespace fathom::lab::kv_compression {
namespace {

using kernels::Bf16KvPages, kernels::Fp8KvPages, kernels::K8V4KvPages, kernels::Nvfp4KvPages;

// Different heads of pages, used in turn: generating all of them would take longer than the rest of the run.
constexpr int64_t kDistinct = 61;

// A head of a page in all formats.
struct Head {
  uint8_t *in_bf16, *fp8, *k8v4, *nvfp4;

  // Normal numbers, rounded to NVFP4. FP8 codes have E2M1's numbers among theirs.
  void fill(std::mt19937_64& random) const {
    std::normal_distribution<float> normal;
    for (int64_t r = 0; r < kPage; ++r)
      for (const bool value : {false, true}) {
        float numbers[kHeadDim];
        for (float& number : numbers) number = normal(random);
        Nvfp4KvPages::put(nvfp4, r, value, numbers);
        for (int64_t d = 0; d < kHeadDim; ++d) put_in_others(r, value, d);
      }
  }

 private:
  void put_in_others(int64_t r, bool value, int64_t d) const {
    const uint8_t scale = nvfp4[Nvfp4KvPages::scale_at(r, value, d)];
    const float number  = Nvfp4KvPages::get(nvfp4, r, value, d);
    const uint8_t code  = fp8_e4m3(number / Fp8KvPages::scale(scale)).bits;  // exact
    reinterpret_cast<bf16*>(in_bf16)[(value ? Bf16KvPages::kElements : 0) + Bf16KvPages::at(r, d)] =
        bf16(number);
    fp8[Fp8KvPages::at(r, d) + (value ? Fp8KvPages::kCodeBytes : 0)]        = code;
    fp8[Fp8KvPages::scale_at(r, d) + (value ? Fp8KvPages::kScaleBytes : 0)] = scale;
    k8v4[K8V4KvPages::at(r, value, d)]       = value ? nvfp4[Nvfp4KvPages::at(r, true, d)] : code;
    k8v4[K8V4KvPages::scale_at(r, value, d)] = scale;
  }
};

void fill(uint8_t* to, int64_t bytes, uint64_t seed) {
  const int64_t heads = bytes / kAllBytes;
  const auto head     = [&](int64_t i) {
    uint8_t* const behind = to + heads * kBf16Bytes;
    return Head{to + i * kBf16Bytes, behind + i * kFp8Bytes, behind + heads * kFp8Bytes + i * kK8V4Bytes,
                behind + heads * (kFp8Bytes + kK8V4Bytes) + i * kFp4Bytes};
  };
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < heads; ++i) {
    const Head one = head(i), same = head(i % kDistinct);
    if (i < kDistinct) {
      one.fill(random);
      continue;
    }
    std::memcpy(one.in_bf16, same.in_bf16, kBf16Bytes);
    std::memcpy(one.fp8, same.fp8, kFp8Bytes);
    std::memcpy(one.k8v4, same.k8v4, kK8V4Bytes);
    std::memcpy(one.nvfp4, same.nvfp4, kFp4Bytes);
  }
}

}  // namespace

Pages::Pages(const Point& at, Arena& arena)
    : DecodeRows(at, arena),
      cache(arena.input<uint8_t>({pages.size() * kKvHeads * kAllBytes}, generate<uint8_t>(fill))) {}

// The bytes of the smallest cache, for all variants: the least that must be read.
Cost Pages::cost() const { return cost_of_reading(kKvHeads * kFp4Bytes / kPage); }

void Pages::check(Checker& checker) const { check_over(in_bf16(), checker); }

namespace {

const Experiment<Pages> decode{
    .question =
        "Values, or keys and values, of 4 bits are a quarter to two fifths of bf16's bytes, but each number "
        "must become bf16 for the tensor cores. How much faster is a decode step, and than with FP8?",
    .limit = Limit::memory,
    // 64 sequences have 537 MB of keys and values in bf16, 285 in FP8, 218 in K8V4 and 151 in NVFP4.
    .axes  = {{"window", {0}}, {"sequences", {64}}, {"context", {4096}}},
    .quick = {{"sequences", {8}}},
    // Sizes around strips (16), runs (32) and pages (64), and windows that begin anywhere in them.
    .check_at = {{"window", {0, 1, 300}},
                 {"sequences", {0, 1, 3}},
                 {"context", {0, 1, 15, 16, 17, 33, 63, 64, 65, 701}}},
    .variants =
        {
            {.id         = "bf16_pages",
             .launch     = on_gpu(bf16_pages),
             .techniques = {"online_softmax", "paged_kv", "tensor_cores", "multi_stage_pipeline", "dsmem"},
             .idea       = "the engine's op over pages of 16 KiB a head",
             .prediction = predict::share(0.24),
             .needs      = {machine::Feature::tma, machine::Feature::clusters}},
            {.id         = "fp8_pages",
             .launch     = on_gpu(fp8_pages),
             .techniques = {"online_softmax", "paged_kv", "tensor_cores", "multi_stage_pipeline", "dsmem",
                            "fp8_kv"},
             .idea       = "E4M3 codes, a scale for each 16: 8.5 KiB",
             .prediction = predict::ratio(1.6),
             .kind       = Kind::engine,
             .op         = "kernels/attention/decode_attention.cuh",
             .needs      = {machine::Feature::tma, machine::Feature::clusters}},
            {.id         = "k8v4_pages",
             .launch     = on_gpu(k8v4_pages),
             .techniques = {"online_softmax", "paged_kv", "tensor_cores", "multi_stage_pipeline", "dsmem",
                            "fp8_kv", "kv_fp4"},
             .idea       = "FP8 keys, and values of 4 bits: 6.5 KiB",
             .prediction = predict::ratio(1.9),
             .needs      = {machine::Feature::tma, machine::Feature::clusters}},
            {.id         = "nvfp4_pages",
             .launch     = on_gpu(nvfp4_pages),
             .techniques = {"online_softmax", "paged_kv", "tensor_cores", "multi_stage_pipeline", "dsmem",
                            "kv_fp4"},
             .idea       = "both of 4 bits, a scale for each 16: 4.5 KiB",
             .prediction = predict::ratio(2.1),
             .needs      = {machine::Feature::tma, machine::Feature::clusters}},
        },
    .backend = Backend::cuda,
    .catalog = {"kv-010", "lab-013"},
};
FATHOM_REGISTER(decode);

}  // namespace
}  // namespace fathom::lab::kv_compression
