// A GPU has an engine for copies in each direction, and both work beside the multiprocessors. Work in one
// stream uses one of the three at a time.
#include "lab/experiment.h"

#include <cmath>
#include <memory>

#include "core/rng.h"
#include "experiments/ch11_streams/leaky_integrator.h"
#include "offload.h"

namespace fathom::lab::copy_compute_overlap {

Offload::Offload(const Point& at, Arena& arena) : steps(at["steps"]) {
  const int64_t n = at["bytes"] / 4;
  // Both inputs hold the same numbers: the second is filled from the seed of the first.
  const auto seed_of_first = std::make_shared<uint64_t>(0);
  const auto first         = generate<float>([seed_of_first](float* data, int64_t count, uint64_t seed) {
    *seed_of_first = seed;
    fill_uniform(data, count, seed, -1, 1);
  });
  const auto second        = generate<float>([seed_of_first](float* data, int64_t count, uint64_t) {
    fill_uniform(data, count, *seed_of_first, -1, 1);
  });
  pageable_in              = arena.input<float>({n}, first, Pages::huge, Place::host);
  pinned_in                = arena.input<float>({n}, second, Pages::huge, Place::pinned);
  out                      = arena.output<float>({n}, Pages::huge, Place::pinned);
  device_in                = arena.workspace<float>({n});
  device_out               = arena.workspace<float>({n});
  FATHOM_EXPECT(steps <= INT32_MAX, "the kernel counts steps in 32 bits");
}

Cost Offload::cost() const {
  return {.read    = out.bytes(),
          .written = out.bytes(),
          .flops   = leaky_integrator::flops(n(), steps),
          .link    = out.bytes()};  // one way: the other is used at the same time
}

Sum Offload::expected(int64_t i) const {
  const double y = pinned_in(i) * leaky_integrator::gain(steps);
  return {.value = y, .magnitude = std::abs(y), .length = leaky_integrator::kRoundings};
}

namespace {

// All declare .syncs, so that the host's part counts in all.
const Experiment<Offload> offload{
    .question =
        "How much of two copies and a kernel disappears when both directions of the link and the "
        "multiprocessors work at the same time?",
    .limit = Limit::link,
    // With one step the kernel is nothing, and what is left is how the link carries both directions at once.
    .axes     = {{"bytes", {128 << 20}}, {"steps", {1792, 1}}},
    .check_at = {{"bytes", {0, 4, 28, 4096, 4 * kChunk - 4, 4 * kChunk, 4 * kChunk + 4, 20 * kChunk + 28}},
                 {"steps", {1, 40}}},
    .variants =
        {
            {.id         = "blocking",
             .launch     = on_gpu(blocking),
             .techniques = {"pinned_memory"},
             .idea       = "copy in, compute, copy out; the host waits after each",
             .prediction = predict::share(0.35),
             .syncs      = true},
            {.id         = "pageable_streams",
             .techniques = {"streams", "events"},
             .idea       = "chunks in four streams, from pageable memory: the driver stages them first",
             .prediction = predict::ratio(0.55),
             .prepare    = prepared_on_gpu(pageable_streams),
             .syncs      = true},
            {.id         = "stream_per_chunk",
             .techniques = {"pinned_memory", "streams", "events", "copy_compute_overlap"},
             .idea       = "the same from page-locked memory",
             .prediction = predict::share_at_least(0.85),
             .prepare    = prepared_on_gpu(stream_per_chunk),
             .syncs      = true},
            {.id         = "stream_per_engine",
             .techniques = {"pinned_memory", "streams", "events", "copy_compute_overlap"},
             .idea       = "a stream for each engine, chunks handed on by events",
             .prediction = predict::share_at_least(0.9),
             .prepare    = prepared_on_gpu(stream_per_engine),
             .syncs      = true},
            {.id         = "store_to_host",
             .techniques = {"pinned_memory", "zero_copy", "streams", "events", "copy_compute_overlap"},
             .idea       = "an engine copies in, the kernel stores its results in the host's memory",
             .prediction = predict::share(0.88),
             .prepare    = prepared_on_gpu(store_to_host),
             .syncs      = true},
            {.id         = "zero_copy",
             .launch     = on_gpu(zero_copy),
             .techniques = {"pinned_memory", "zero_copy", "copy_compute_overlap"},
             .idea       = "one kernel reads and writes the host's memory: no chunks",
             .prediction = predict::share(0.85),
             .syncs      = true},
        },
    .backend = Backend::cuda,
    .catalog = {"streams-003"},
};
FATHOM_REGISTER(offload);

}  // namespace
}  // namespace fathom::lab::copy_compute_overlap
