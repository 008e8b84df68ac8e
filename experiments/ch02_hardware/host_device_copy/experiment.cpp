// The copy engine of a GPU reads the host's memory by physical address, so the pages must not move while it
// does. Page-locked memory guarantees that. Other data is copied twice: by the CPU to page-locked memory, and
// by the copy engine from there.
#include "lab/experiment.h"

#include <memory>
#include "core/rng.h"
#include "core/thread_pool.h"
#include "upload.h"

namespace fathom::lab::host_device_copy {
namespace {

// Both inputs hold the same numbers: the second is filled from the same seed as the first.
using SharedSeed = std::shared_ptr<uint64_t>;

Generate first_of(const SharedSeed& shared) {
  return generate<float>([shared](float* data, int64_t n, uint64_t seed) {
    *shared = seed;
    fill_uniform(data, n, seed, -1, 1);
  });
}
Generate second_of(const SharedSeed& shared) {
  return generate<float>(
      [shared](float* data, int64_t n, uint64_t) { fill_uniform(data, n, *shared, -1, 1); });
}

Launch<Upload> prepare(const Upload&, Context&) {
  return [staged = prepare_chunked()](const Upload& p, Context& context) {
    staged(p, context.stream, context.pool);
  };
}
using Prepare           = Launch<Upload> (*)(const Upload&, Context&);
const Prepare kPrepared = prepare_chunked != nullptr ? prepare : nullptr;

}  // namespace

Upload::Upload(const Point& at, Arena& arena) {
  const int64_t n = at["bytes"] / 4;
  const auto seed = std::make_shared<uint64_t>(0);
  pageable_in     = arena.input<float>({n}, first_of(seed), Pages::huge, Place::host);
  pinned_in       = arena.input<float>({n}, second_of(seed), Pages::huge, Place::pinned);
  staging         = arena.workspace<float>({2 * kChunk}, Pages::huge, Place::pinned);
  out             = arena.output<float>({n});
}

Cost Upload::cost() const { return {.written = out.bytes(), .link = out.bytes()}; }

double Upload::expected(int64_t i) const { return pageable_in(i); }

const Experiment<Upload> upload{
    .question = "How fast does data get from the host to the device, and what does page-locking it gain?",
    .limit    = Limit::link,
    .axes     = {{"bytes", {64 << 20, 1 << 20}}},
    .check_at = {{"bytes",
                  {0, 4, 28, 4096, 65540, 4 * kChunk - 4, 4 * kChunk, 4 * kChunk + 4, 12 * kChunk + 28}}},
    .variants =
        {
            {.id         = "pageable",
             .launch     = on_gpu(pageable),
             .techniques = {},
             .idea       = "from memory as malloc gives it: the driver stages it on one thread",
             .prediction = predict::share(0.2),
             .syncs      = true},
            {.id         = "chunked",
             .techniques = {"pinned_memory", "link_bandwidth"},
             .idea       = "staged by ourselves: one chunk of 2 MiB is filled while another crosses",
             .prediction = predict::ratio(1.1),
             .prepare    = kPrepared,
             .syncs      = true},
            {.id         = "chunked_threads",
             .techniques = {"pinned_memory", "link_bandwidth"},
             .idea       = "the same, filled by all host threads",
             .prediction = predict::share(0.75),
             .threads    = kAllThreads,
             .prepare    = kPrepared,
             .syncs      = true},
            {.id         = "pinned",
             .launch     = on_gpu(pinned),
             .techniques = {"pinned_memory"},
             .idea       = "page-locked from the start: the copy engine reads it in place",
             .prediction = predict::share_at_least(0.95)},
        },
    .backend = Backend::cuda,
    .catalog = {"memory-003"},
};
FATHOM_REGISTER(upload);

}  // namespace fathom::lab::host_device_copy
