// A decode step reads the whole cache. Half the bytes should be half the time: what is left of that when each
// number must be made bf16 again before a tensor core takes it?
#include "lab/experiment.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include "experiments/ch10_pipelining/flash_attention_gpu/reference.h"
#include "pages.h"

namespace fathom::lab::fp8_kv {
namespace {

using kernels::Fp8KvTiles;
using kernels::KvTiles;

constexpr int64_t kBothBytes = kTileBytes + Fp8KvTiles::kPageBytes;

// Pages' heads are one of so many, in turn: making them all would take longer than all the rest.
constexpr int64_t kDistinct = 61;

// Normal numbers, rounded to FP8, in both formats.
void fill(uint8_t* to, int64_t bytes, uint64_t seed) {
  const int64_t heads = bytes / kBothBytes, distinct = std::min(heads, kDistinct);
  uint8_t* const fp8 = to + heads * kTileBytes;
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < distinct; ++i) {
    uint8_t* strips = fp8 + i * Fp8KvTiles::kPageBytes;
    bf16* tile      = reinterpret_cast<bf16*>(to + i * kTileBytes);
    for (int64_t r = 0; r < kPage; ++r)
      for (const bool value : {false, true}) {
        float numbers[kHeadDim];
        for (float& number : numbers) number = normal(random);
        Fp8KvTiles::put(strips, r, value, numbers);
        for (int64_t d = 0; d < kHeadDim; ++d)
          tile[(value ? KvTiles::kElements : 0) + KvTiles::at(r, d)] =
              bf16(Fp8KvTiles::get(strips, r, value, d));
      }
  }
  for (int64_t i = distinct; i < heads; ++i) {
    std::memcpy(to + i * kTileBytes, to + i % distinct * kTileBytes, kTileBytes);
    std::memcpy(fp8 + i * Fp8KvTiles::kPageBytes, fp8 + i % distinct * Fp8KvTiles::kPageBytes,
                Fp8KvTiles::kPageBytes);
  }
}

int64_t pages_for(int64_t positions) { return (positions + kPage - 1) / kPage; }

int64_t reach_of(const Pages& p) { return p.window > 0 ? std::min(p.context, p.window) : p.context; }

}  // namespace

Pages::Pages(const Point& at, Arena& arena)
    : context(at["context"]),
      window(at["window"]),
      q(arena.input<bf16>({at["sequences"], kHeads, kHeadDim}, Normal{})),
      pages(arena.input<int32_t>({at["sequences"], pages_for(context)}, Permutation{})),
      cache(arena.input<uint8_t>({pages.size() * kKvHeads * kBothBytes}, generate<uint8_t>(fill))),
      sinks(arena.input<float>({kHeads}, Normal{})),
      positions(arena.input<int32_t>(
          {at["sequences"]}, generate<int32_t>([last = context - 1](int32_t* to, int64_t n, uint64_t) {
            std::fill_n(to, n, static_cast<int32_t>(last));
          }))),
      sequence(
          arena.input<int32_t>({at["sequences"]}, generate<int32_t>([](int32_t* to, int64_t n, uint64_t) {
                                 for (int32_t s = 0; s < n; ++s) to[s] = s;
                               }))),
      out(arena.output<bf16>({at["sequences"], kHeads, kHeadDim})) {}

// Of a cache in FP8, for both: the least that must be read.
Cost Pages::cost() const {
  const int64_t in_reach = q.extent(0) * reach_of(*this);
  return {.read    = in_reach * kKvHeads * Fp8KvTiles::kPageBytes / kPage + q.bytes(),
          .written = out.bytes(),
          .flops   = 4.0 * static_cast<double>(in_reach) * kHeads * kHeadDim};
}

void Pages::check(Checker& checker) const {
  using flash_attention_gpu::RowReference;
  std::optional<RowReference> row;
  int64_t row_s = -1, row_h = -1;
  checker.values("out", out, [&](int64_t s, int64_t h, int64_t d) {
    if (std::tie(row_s, row_h) != std::tie(s, h)) {
      row.emplace(&q(s, h, 0),
                  flash_attention_gpu::PagedHead{in_bf16(), pages.data() + s * pages.extent(1), h / kGroup},
                  kScale, sinks(h), context - reach_of(*this), context - 1);
      row_s = s, row_h = h;
    }
    return row->at(d);
  });
}

const Experiment<Pages> fp8_kv{
    .question =
        "A KV cache in FP8 is half the bytes, but its numbers must become bf16 again on their way to "
        "the tensor cores. How much faster does a decode step read it?",
    .limit = Limit::memory,
    // 64 sequences have 537 MB of keys and values in bf16 and 285 MB in FP8, 8 have 67 MB and 36 MB.
    .axes = {{"window", {0}}, {"sequences", {64, 8}}, {"context", {4096}}},
    // Around strips (16), runs (32) and pages (64), and with windows that begin anywhere in them.
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
             .idea       = "the same over pages of 8.5 KiB: E4M3 codes, a scale for each 16",
             .prediction = predict::ratio(1.5),
             .needs      = {machine::Feature::tma, machine::Feature::clusters}},
        },
    .backend = Backend::cuda,
    .catalog = {"kv-008"},
};
FATHOM_REGISTER(fp8_kv);

}  // namespace fathom::lab::fp8_kv
