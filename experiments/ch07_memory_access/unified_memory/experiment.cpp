// Managed memory has one address on both sides, and pages go to whoever touches them. What that costs beside
// copies said in the program, and which hints buy it back.
#include "lab/experiment.h"

#include <cmath>

#include "pages.h"

namespace fathom::lab::unified_memory {

Turns::Turns(const Point& at, Arena& arena)
    : stamp(arena.input<float>({at["pages"]}, Uniform{-1, 1}, Pages::small, Place::host)),
      out(arena.output<float>({at["pages"]}, Pages::small, Place::host)) {}

// What crosses the link in one direction: x there and y back can cross at the same time.
Cost Turns::cost() const { return {.link = pages() * kPageBytes}; }

Sum Turns::expected(int64_t page) const {
  const auto x = [&](int64_t word) -> double {
    return word == word_of(page) ? stamp(page) : content_of('x', page * kWords + word);
  };
  double sum = 0, magnitude = 0;
  for (int64_t word = 0; word < kWords; ++word) {
    sum += x(word);
    magnitude += std::abs(x(word));
  }
  const double c = content_of('c', page * kWords + word_of(page));
  return {.value     = stamp(page) + c * sum + c,
          .magnitude = std::abs(stamp(page)) + std::abs(c) * (magnitude + 1),
          .length    = kWords};
}

namespace {

// All declare .syncs: the host's turns are part of a call. The driver prefetches on a thread of its own.
const Experiment<Turns> turns{
    .question =
        "Host and GPU take turns with the same arrays. What does managed memory cost beside explicit copies: "
        "on demand, prefetched, and with hints?",
    .limit    = Limit::link,
    .axes     = {{"pages", {32768, 1024}}},  // 128 MiB and 4 MiB in each of three arrays
    .check_at = {{"pages", {0, 1, 2, 3, 511, 513, 1025}}},
    .variants =
        {
            {.id         = "explicit_copies",
             .techniques = {"pinned_memory"},
             .idea       = "x copied to the GPU from page-locked memory, y copied back",
             .prediction = predict::share_at_least(0.35),
             .prepare    = prepared_on_gpu(explicit_copies),
             .syncs      = true},
            {.id         = "on_demand",
             .techniques = {"unified_memory"},
             .idea       = "managed memory, pages brought by faults",
             .prediction = predict::nothing(),
             .prepare    = prepared_on_gpu(on_demand),
             .syncs      = true},
            {.id         = "prefetched",
             .techniques = {"unified_memory"},
             .idea       = "every array prefetched before it is needed, in both directions",
             .prediction = predict::ratio_at_least(0.25),
             .threads    = 2,
             .prepare    = prepared_on_gpu(prefetched),
             .syncs      = true},
            {.id         = "read_mostly",
             .techniques = {"unified_memory"},
             .idea       = "what the GPU only reads is duplicated and never comes back",
             .prediction = predict::ratio_at_least(0.45),
             .threads    = 2,
             .prepare    = prepared_on_gpu(read_mostly),
             .syncs      = true},
            {.id         = "preferred_location",
             .techniques = {"unified_memory", "zero_copy"},
             .idea       = "x and y stay on the host, and the GPU reaches across the link",
             .prediction = predict::ratio_at_least(1.2),
             .prepare    = prepared_on_gpu(preferred_location),
             .syncs      = true},
        },
    .backend = Backend::cuda,
    .catalog = {"memory-017"},
};
FATHOM_REGISTER(turns);

}  // namespace
}  // namespace fathom::lab::unified_memory
