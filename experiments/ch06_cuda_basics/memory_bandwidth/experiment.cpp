// A table's size says which level answers, and the pattern how much of a line each read uses. Together they
// make a staircase of bandwidths.
#include <algorithm>
#include <bit>
#include <string>

#include "lab/experiment.h"
#include "reads.h"

namespace fathom::lab::memory_bandwidth {
namespace {

Pattern pattern_of(const std::string& name) {
  if (name == "sequential") return Pattern::sequential;
  if (name == "strided") return Pattern::strided;
  if (name == "random_lines") return Pattern::random_lines;
  FATHOM_EXPECT(name == "random_vectors",
                "a pattern is sequential, strided, random_lines or random_vectors, and not " + name);
  return Pattern::random_vectors;
}

uint32_t vector_of(Pattern pattern, uint32_t at, uint32_t vectors) {
  switch (pattern) {
    case Pattern::sequential:
      return memory_bandwidth::vector_of<Pattern::sequential>(at, vectors);
    case Pattern::strided:
      return memory_bandwidth::vector_of<Pattern::strided>(at, vectors);
    case Pattern::random_lines:
      return memory_bandwidth::vector_of<Pattern::random_lines>(at, vectors);
    case Pattern::random_vectors:
      return memory_bandwidth::vector_of<Pattern::random_vectors>(at, vectors);
  }
  return 0;
}

}  // namespace

Reads::Reads(const Point& at, Arena& arena)
    : pattern(pattern_of(at.text("pattern"))),
      table(arena.input<uint32_t>({at["bytes"] / 4}, Uniform{0, 4294967296.0})),
      out(arena.output<uint32_t>({at["blocks"] * kThreads})) {
  FATHOM_EXPECT(table.bytes() >= kLine && std::has_single_bit(static_cast<uint64_t>(table.bytes())) &&
                    table.bytes() <= int64_t{1} << 34,
                "the table's size must be a power of two, of 128 bytes to 16 GiB");
}

// The table once, or less: L1 may answer all other reads, faster than any level whose rate is known.
Cost Reads::cost() const {
  return {.read        = std::min(table.bytes(), out.size() * kSteps * kVector),
          .written     = out.bytes(),
          .working_set = table.bytes()};
}

int64_t Reads::expected(int64_t thread) const {
  const auto vectors = static_cast<uint32_t>(table.bytes() / kVector);
  uint32_t sum       = 0;
  for (uint32_t step = 0; step < kSteps; ++step) {
    const uint32_t at =
        position(static_cast<uint32_t>(thread / kThreads), step, static_cast<uint32_t>(thread % kThreads));
    sum += table(int64_t{vector_of(pattern, at, vectors)} * (kVector / 4));
  }
  return sum;
}

const Experiment<Reads> experiment{
    .question =
        "How many bytes a second does each level of the memory hierarchy deliver, and what does the "
        "pattern of the reads leave of that?",
    .limit    = Limit::none,
    .axes     = {{"bytes", {64 << 10, 1 << 20, 16 << 20, 64 << 20, 1 << 30}},
                 {"pattern", {"sequential", "strided", "random_lines", "random_vectors"}},
                 {"blocks", {1024}}},  // of 256 threads: one wave, and 1 GiB of reads
    .check_at = {{"bytes", {128, 4 << 10, 1 << 20}},
                 {"pattern", {"sequential", "strided", "random_lines", "random_vectors"}},
                 {"blocks", {0, 1, 3}}},
    .variants =
        {
            {.id         = "past_l1",
             .launch     = on_gpu(past_l1),
             .techniques = {},
             .idea       = "ld.global.cg: from L2, or from DRAM behind it",
             .prediction = predict::nothing()},
            {.id         = "through_l1",
             .launch     = on_gpu(through_l1),
             .techniques = {"memory_hierarchy"},
             .idea       = "ordinary loads: the smallest cache that holds the table answers",
             .prediction = predict::ratio_at_least(0.98)},
        },
    .backend = Backend::cuda,
    .cache   = Cache::hot,  // one set again and again, so that `bytes` is the whole working set
    .sets    = 1,
    .catalog = {"memory-016", "memory-004"},
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::memory_bandwidth
