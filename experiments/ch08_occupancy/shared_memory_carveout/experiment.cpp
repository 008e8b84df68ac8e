// L1 and shared memory are one memory of 256 KiB. Room for more blocks is taken from a cache, and a kernel
// that lives on the cache is better off with fewer blocks.
#include "lab/experiment.h"

#include <cmath>

#include "embedding_bag.h"

namespace fathom::lab::shared_memory_carveout {
namespace {

int64_t table_rows(const Point& at) {
  return at["table_kib"] * 1024 / (kWidth * static_cast<int64_t>(sizeof(float)));
}

}  // namespace

EmbeddingBag::EmbeddingBag(const Point& at, Arena& arena)
    : id(arena.input<int32_t>({at["n"], kBag}, Uniform{0, static_cast<double>(table_rows(at))})),
      table(arena.input<float>({table_rows(at), kWidth}, Uniform{-1, 1})),
      out(arena.output<float>({kWidth, at["n"]})) {
  FATHOM_EXPECT(table_rows(at) > 0, "a table needs a row (-a table_kib=96)");
}

// Counts the table once: what it costs to read its rows again and again is the question.
Cost EmbeddingBag::cost() const {
  return {.read    = id.bytes() + (id.size() > 0 ? table.bytes() : 0),
          .written = out.bytes(),
          .flops   = static_cast<double>(kBag) * static_cast<double>(out.size())};
}

Sum EmbeddingBag::expected(int64_t d, int64_t i) const {
  Sum sum{.length = kBag};
  for (int64_t k = 0; k < kBag; ++k) {
    const double term = table(id(i, k), d);
    sum.value += term;
    sum.magnitude += std::abs(term);
  }
  return sum;
}

namespace {

const Experiment<EmbeddingBag> embedding_bag{
    .question =
        "A kernel needs a tile in shared memory and a table in L1, which share 256 KiB: who should get how "
        "much, and does it matter whether the tile is static or dynamic?",
    .limit    = Limit::memory,
    .axes     = {{"n", {1 << 21}}, {"table_kib", {96, 16, 512}}},
    .check_at = {{"n", {0, 1, 31, 33, 255, 256, 257, 383, 385, 5003}}, {"table_kib", {1, 96}}},
    .variants =
        {
            {.id         = "static_tile",
             .launch     = on_gpu(static_tile),
             .techniques = {"shared_memory"},
             .idea       = "a tile of 33 KiB known to the compiler, no preference",
             .prediction = predict::nothing()},
            {.id         = "dynamic_tile",
             .launch     = on_gpu(dynamic_tile),
             .techniques = {"shared_memory"},
             .idea       = "the same tile, sized by the launch",
             .prediction = predict::ratio(1)},
            {.id         = "prefer_shared",
             .launch     = on_gpu(prefer_shared),
             .techniques = {"shared_memory", "shared_memory_carveout"},
             .idea       = "all 228 KiB as shared memory: six blocks, 28 KiB of L1",
             .prediction = predict::ratio(1)},
            {.id         = "prefer_l1",
             .launch     = on_gpu(prefer_l1),
             .techniques = {"shared_memory", "shared_memory_carveout", "occupancy_tuning"},
             .idea       = "132 KiB of shared memory: three blocks, 124 KiB of L1",
             .prediction = predict::ratio_at_least(1.5)},
            {.id         = "table_in_shared",
             .launch     = on_gpu(table_in_shared),
             .techniques = {"shared_memory", "shared_memory_carveout"},
             .idea       = "the table too, in up to 146 KiB of dynamic shared memory",
             .prediction = predict::ratio_at_least(1.5),
             .up_to      = {{"table_kib", 96}}},
        },
    .backend = Backend::cuda,
    .catalog = {"tiling-004"},
};
FATHOM_REGISTER(embedding_bag);

}  // namespace
}  // namespace fathom::lab::shared_memory_carveout
