// PagedAttention gives up that a sequence's keys lie side by side, so that memory is given out a page at a
// time. Each tile must then be looked up, and small pages make small copies. What does that cost a decode
// step?
#include "lab/experiment.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "experiments/paged_attention_problem.h"
#include "layouts.h"

namespace fathom::lab::paged_tiles {
namespace {

using kernels::Bf16KvPages;

constexpr int64_t kRow = kHeadDim;  // numbers

// Pages of a size are scattered by a multiplication, the same at every call.
int64_t scattered(int64_t i, int64_t pages) {
  constexpr int64_t kPrime = 1'000'003;  // more pages than any point has, so no divisor of theirs
  return i * kPrime % pages;
}
View<const int32_t, 2> block_table(Arena& arena, int64_t sequences, int64_t of_sequence) {
  return arena.input<int32_t>({sequences, of_sequence},
                              generate<int32_t>([](int32_t* to, int64_t n, uint64_t) {
                                for (int64_t i = 0; i < n; ++i) to[i] = static_cast<int32_t>(scattered(i, n));
                              }));
}

// Different keys and values, each in the eight orders of pieces that a tile has.
using SwizzledRow = std::array<std::array<bf16, kRow>, 8>;
std::vector<SwizzledRow> distinct_rows(uint64_t seed) {
  std::vector<SwizzledRow> rows(509);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (SwizzledRow& row : rows)
    for (int64_t d = 0; d < kRow; ++d) {
      const bf16 number(normal(random));
      for (int64_t r = 0; r < 8; ++r)
        row[static_cast<size_t>(r)][static_cast<size_t>(Bf16KvPages::at(r, d) - r * kRow)] = number;
    }
  return rows;
}

struct Shape {
  int64_t sequences, padded;

  int64_t numbers() const { return sequences * padded * kKvHeads * 2 * kRow; }  // of a layout
  // Where the row of position r lies in a layout, in rows.
  int64_t row_of(int64_t size, int64_t s, int64_t r, int64_t head, bool value) const {
    if (size == 0) return ((s * kKvHeads + head) * 2 + value) * padded + r;
    const int64_t page = scattered(s * (padded / size) + r / size, sequences * padded / size);
    return ((page * kKvHeads + head) * 2 + value) * size + r % size;
  }
};

void fill(bf16* to, const Shape& shape, uint64_t seed) {
  const std::vector<SwizzledRow> rows = distinct_rows(seed);
  for (int64_t s = 0; s < shape.sequences; ++s)
    for (int64_t r = 0; r < shape.padded; ++r)
      for (int64_t head = 0; head < kKvHeads; ++head)
        for (const bool value : {false, true}) {
          const int64_t which     = ((s * shape.padded + r) * kKvHeads + head) * 2 + value;
          const SwizzledRow& from = rows[static_cast<size_t>(which * 7 % static_cast<int64_t>(rows.size()))];
          for (int layout = 0; layout < kLayouts; ++layout)
            std::memcpy(
                to + layout * shape.numbers() + shape.row_of(kPageSizes[layout], s, r, head, value) * kRow,
                from[static_cast<size_t>(r % 8)].data(), kRow * sizeof(bf16));
        }
}

}  // namespace

Step::Step(const Point& at, Arena& arena)
    : context(at["context"]),
      padded((context + kContextUnit - 1) / kContextUnit * kContextUnit),
      q(arena.input<bf16>({at["sequences"], kHeads, kHeadDim}, Normal{})),
      sinks(arena.input<float>({kHeads}, Normal{})),
      positions(arena.input<int32_t>(
          {at["sequences"]}, generate<int32_t>([last = context - 1](int32_t* to, int64_t n, uint64_t) {
            std::fill_n(to, n, static_cast<int32_t>(last));
          }))),
      sequence(
          arena.input<int32_t>({at["sequences"]}, generate<int32_t>([](int32_t* to, int64_t n, uint64_t) {
                                 for (int32_t s = 0; s < n; ++s) to[s] = s;
                               }))),
      pages_of_16(block_table(arena, at["sequences"], padded / 16)),
      pages_of_64(block_table(arena, at["sequences"], padded / 64)),
      pages_of_256(block_table(arena, at["sequences"], padded / 256)),
      cache(arena.input<bf16>(
          {kLayouts, Shape{at["sequences"], padded}.numbers()},
          generate<bf16>([shape = Shape{at["sequences"], padded}](bf16* to, int64_t, uint64_t seed) {
            fill(to, shape, seed);
          }))),
      out(arena.output<bf16>({at["sequences"], kHeads, kHeadDim})) {}

Cost Step::cost() const {
  const int64_t in_reach = sequences() * context;
  return {.read    = in_reach * kKvHeads * 4 * kHeadDim + q.bytes(),
          .written = out.bytes(),
          .flops   = 4.0 * static_cast<double>(in_reach) * kHeads * kHeadDim};
}

void Step::check(Checker& checker) const {
  paged_attention::check_rows(checker, out, [&](int64_t s, int64_t h) {
    return paged_attention::RowReference(
        &q(s, h, 0), {in_pages_of_64(), pages_of_64.data() + s * pages_of_64.extent(1), h / kGroup}, kScale,
        sinks(h), 0, context - 1);
  });
}

namespace {

const std::vector<machine::Feature> kNeeds      = {machine::Feature::tma};
const std::vector<std::string> kTechniques      = {"online_softmax", "tensor_cores", "multi_stage_pipeline"};
const std::vector<std::string> kPagedTechniques = {"online_softmax", "tensor_cores", "multi_stage_pipeline",
                                                   "paged_kv"};

const Experiment<Step> paged_tiles{
    .question = "What do pages cost a decode step, beside a cache without, and how small may they be?",
    .limit    = Limit::memory,
    // 134 MB of keys and values, more than L2 holds.
    .axes  = {{"sequences", {64}}, {"context", {1024}}},
    .quick = {{"sequences", {16}}},
    // Around tiles (32) and pages (16, 64, 256).
    .check_at = {{"sequences", {0, 1, 3}}, {"context", {0, 1, 15, 16, 31, 33, 64, 127, 255, 257, 1100}}},
    .variants =
        {
            {.id         = "dense",
             .launch     = on_gpu(dense),
             .techniques = kTechniques,
             .idea       = "no pages: a sequence's keys of a head are one piece of memory",
             .prediction = predict::share(0.8),
             .needs      = kNeeds},
            {.id         = "pages_of_16",
             .launch     = on_gpu(pages_of_16),
             .techniques = kPagedTechniques,
             .idea       = "two look-ups and four copies of 2 KB a tile",
             .prediction = predict::ratio(0.95),
             .needs      = kNeeds},
            {.id         = "pages_of_64",
             .launch     = on_gpu(pages_of_64),
             .techniques = kPagedTechniques,
             .idea       = "the engine's size: a look-up and two copies of 4 KB a tile",
             .prediction = predict::ratio(1),
             .needs      = kNeeds},
            {.id         = "pages_of_256",
             .launch     = on_gpu(pages_of_256),
             .techniques = kPagedTechniques,
             .idea       = "eight tiles of a page",
             .prediction = predict::ratio(1),
             .needs      = kNeeds},
            {.id         = "engine_op",
             .launch     = on_gpu(engine_op),
             .techniques = {},
             .idea       = "the engine's op over pages of 64",
             .prediction = predict::ratio(1),
             .kind       = Kind::engine,
             .op         = "kernels/attention/decode_attention.cuh",
             .needs      = {machine::Feature::tma, machine::Feature::clusters}},
        },
    .backend = Backend::cuda,
    .catalog = {"attention-007", "attention-017"},
};
FATHOM_REGISTER(paged_tiles);

}  // namespace
}  // namespace fathom::lab::paged_tiles
