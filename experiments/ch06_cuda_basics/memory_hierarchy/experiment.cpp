// A load takes as long as the level takes that holds its line. A chain of loads, each of which needs the one
// before, shows that time; over tables from 4 KiB to 1 GiB it climbs a staircase.
#include <bit>
#include <memory>

#include "core/rng.h"
#include "lab/experiment.h"
#include "walk.h"

namespace fathom::lab::memory_hierarchy {
namespace {

// Tables that the host holds too are filled by the host, both from the same seed; larger ones on the GPU.
using SharedSeed = std::shared_ptr<uint64_t>;

void fill_words(uint32_t* words, int64_t n, uint64_t seed) {
  fill_integers(words, n, seed, int64_t{0}, int64_t{1} << 32);
}
Generate first_of(const SharedSeed& shared) {
  return generate<uint32_t>([shared](uint32_t* words, int64_t n, uint64_t seed) {
    *shared = seed;
    fill_words(words, n, seed);
  });
}
Generate second_of(const SharedSeed& shared) {
  return generate<uint32_t>(
      [shared](uint32_t* words, int64_t n, uint64_t) { fill_words(words, n, *shared); });
}

}  // namespace

Walk::Walk(const Point& at, Arena& arena) {
  const int64_t bytes = at["bytes"];
  FATHOM_EXPECT(bytes >= kLine && std::has_single_bit(static_cast<uint64_t>(bytes)),
                "the table's size must be a power of two, of 128 bytes or more");
  if (bytes <= kMostBytesOnHost) {
    const auto seed = std::make_shared<uint64_t>(0);
    table           = arena.input<uint32_t>({bytes / 4}, first_of(seed));
    on_host         = arena.input<uint32_t>({bytes / 4}, second_of(seed), Pages::huge, Place::pinned);
  } else {
    table = arena.input<uint32_t>({bytes / 4}, Uniform{0, 4294967296.0});
  }
  out = arena.output<uint32_t>({at["chains"]});
}

Cost Walk::cost() const { return {.written = out.bytes(), .loads = kSteps, .working_set = table.bytes()}; }

int64_t Walk::expected(int64_t chain) const {
  const auto lines = static_cast<uint64_t>(table.bytes() / kLine);
  const auto c     = static_cast<uint64_t>(chain);
  // In lines, where the variants count bytes: a position's bits below a line never matter.
  uint64_t line = (c * 2654435761u % (uint64_t{1} << 32)) / kLine % lines;
  for (uint64_t step = 0; step < kSteps; ++step) {
    const uint64_t key = (c * 0x85EBCA6Bu + step * kKeyStep) % (uint64_t{1} << 32);
    line               = (table(static_cast<int64_t>(line) * (kLine / 4)) ^ key) / kLine % lines;
  }
  return static_cast<int64_t>(line) * kLine;
}

const Experiment<Walk> experiment{
    .question =
        "How long does a load take from each level of the memory hierarchy, from registers to the host?",
    .limit    = Limit::none,
    .axes     = {{"bytes",
                  {64 << 10, 4 << 10, 16 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 32 << 20,
                   64 << 20, 256 << 20, 1 << 30}},
                 {"chains", {512}}},
    .check_at = {{"bytes", {128, 4 << 10, 128 << 10, 1 << 20}}, {"chains", {0, 1, 3, 5, 127}}},
    .variants =
        {
            {.id         = "through_l1",
             .launch     = on_gpu(through_l1),
             .techniques = {},
             .idea       = "an ordinary load: the smallest cache that holds the table answers",
             .prediction = predict::nothing()},
            {.id         = "past_l1",
             .launch     = on_gpu(past_l1),
             .techniques = {"memory_hierarchy"},
             .idea       = "ld.global.cg: from L2, or from DRAM behind it",
             .prediction = predict::nothing()},
            {.id         = "shared",
             .launch     = on_gpu(shared),
             .techniques = {"memory_hierarchy", "shared_memory"},
             .idea       = "the table is copied to shared memory first",
             .prediction = predict::ratio_at_least(1.15),
             .up_to      = {{"bytes", int64_t{128} << 10}}},
            {.id         = "registers",
             .launch     = on_gpu(registers),
             .techniques = {"memory_hierarchy"},
             .idea       = "a line's word in each lane's register, read by a shuffle",
             .prediction = predict::ratio_at_least(1.15),
             .up_to      = {{"bytes", int64_t{4} << 10}}},
            {.id         = "host_memory",
             .launch     = on_gpu(host_memory),
             .techniques = {"memory_hierarchy", "zero_copy", "pinned_memory"},
             .idea       = "the table stays on the host: every load crosses the link",
             .prediction = predict::nothing(),
             .up_to      = {{"bytes", kMostBytesOnHost}}},
        },
    .backend = Backend::cuda,
    .cache   = Cache::hot,  // one set again and again, so that `bytes` is the whole working set
    .sets    = 1,
    .catalog = {"memory-005", "memory-004"},
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::memory_hierarchy
