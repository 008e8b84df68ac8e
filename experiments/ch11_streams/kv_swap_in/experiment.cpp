// A preempted request leaves its KV cache on the host and gets it back in pieces of a few KiB. The link
// carries them in no time; what costs is everything around a copy.
#include "lab/experiment.h"

#include <memory>
#include <vector>

#include "core/rng.h"
#include "swap_in.h"

namespace fathom::lab::kv_swap_in {

SwapIn::SwapIn(const Point& at, Arena& arena) {
  const int64_t pages = at["pages"];
  // Pages and table exist twice: the second of each is filled from the seed of the first.
  const auto of_pages = std::make_shared<uint64_t>(0), of_table = std::make_shared<uint64_t>(0);
  const auto words = [](uint32_t* data, int64_t n, uint64_t seed) {
    fill_integers(data, n, seed, 0, 0x1p32);
  };
  const auto order = [](int32_t* data, int64_t n, uint64_t seed) { fill_permutation(data, n, seed, n); };
  pageable_in      = arena.input<uint32_t>(
      {pages, kPageWords},
      generate<uint32_t>([=](uint32_t* data, int64_t n, uint64_t seed) { words(data, n, *of_pages = seed); }),
      Pages::huge, Place::host);
  pinned_in = arena.input<uint32_t>(
      {pages, kPageWords},
      generate<uint32_t>([=](uint32_t* data, int64_t n, uint64_t) { words(data, n, *of_pages); }),
      Pages::huge, Place::pinned);
  table_on_host = arena.input<int32_t>(
      {pages},
      generate<int32_t>([=](int32_t* data, int64_t n, uint64_t seed) { order(data, n, *of_table = seed); }),
      Pages::small, Place::host);
  table = arena.input<int32_t>(
      {pages}, generate<int32_t>([=](int32_t* data, int64_t n, uint64_t) { order(data, n, *of_table); }));
  out     = arena.output<uint32_t>({pages, kPageWords});
  staging = arena.workspace<uint32_t>({pages, kPageWords});
}

Cost SwapIn::cost() const { return {.written = out.bytes(), .link = out.bytes()}; }

void SwapIn::check(Checker& checker) const {
  std::vector<int64_t> came_from(static_cast<size_t>(pages()));
  for (int64_t i = 0; i < pages(); ++i) came_from[static_cast<size_t>(table_on_host(i))] = i;
  checker.values("out", out, [&](int64_t page, int64_t word) {
    return static_cast<int64_t>(pageable_in(came_from[static_cast<size_t>(page)], word));
  });
}

namespace {

// All declare .syncs: the host's calls are the subject.
const Experiment<SwapIn> swap_in{
    .question =
        "Requests get their KV cache back from the host, scattered over pages of 16 KiB: what share of "
        "the link's rate is left, and what restores it?",
    .limit    = Limit::link,
    .axes     = {{"pages", {1536}}},  // 32 requests
    .check_at = {{"pages", {0, 1, 47, 48, 49, 500}}},
    .variants =
        {
            {.id         = "stream_per_request",
             .launch     = on_gpu(stream_per_request),
             .techniques = {},
             .idea       = "a new stream for each request, copies from pageable memory, a wait",
             .prediction = predict::share_at_least(0.05),
             .syncs      = true},
            {.id         = "pooled_streams",
             .techniques = {"pinned_memory", "streams", "events"},
             .idea       = "four streams that stay, page-locked memory, no wait",
             .prediction = predict::ratio_at_least(1.5),
             .prepare    = prepared_on_gpu(pooled_streams),
             .syncs      = true},
            {.id         = "batched_copy",
             .techniques = {"pinned_memory", "batching"},
             .idea       = "one call submits all copies",
             .prediction = predict::ratio_at_least(2),
             .prepare    = prepared_on_gpu(batched_copy),
             .syncs      = true},
            {.id         = "scattered",
             .launch     = on_gpu(scattered),
             .techniques = {"pinned_memory", "batching"},
             .idea       = "one copy into staging memory on the device; a kernel places the pages",
             .prediction = predict::share_at_least(0.9),
             .syncs      = true},
        },
    .backend = Backend::cuda,
    .catalog = {"streams-007"},
};
FATHOM_REGISTER(swap_in);

}  // namespace
}  // namespace fathom::lab::kv_swap_in
