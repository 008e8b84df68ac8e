// Counting is trivial until many threads count at once: then the location of the counters, the number of
// copies and the contention between threads matter.
#include <array>
#include <future>
#include <vector>

#include "histogram.h"
#include "lab/experiment.h"

namespace fathom::lab::histogram {
namespace {

using Counts = std::array<int64_t, kBins>;

Counts count(View<const uint8_t, 1> in) {
  constexpr int64_t kTasks = 8;
  std::vector<std::future<Counts>> tasks;
  for (int64_t task = 0; task < kTasks; ++task)
    tasks.push_back(std::async(std::launch::async, [in, task] {
      Counts part{};
      for (int64_t i = in.size() * task / kTasks; i < in.size() * (task + 1) / kTasks; ++i) ++part[in(i)];
      return part;
    }));
  Counts counts{};
  for (std::future<Counts>& task : tasks) {
    const Counts part = task.get();
    for (int v = 0; v < kBins; ++v) counts[v] += part[v];
  }
  return counts;
}

}  // namespace

Histogram::Histogram(const Point& at, Arena& arena)
    : in(arena.input<uint8_t>({at["n"]}, Uniform{0, static_cast<double>(at["distinct"])})),
      out(arena.output<uint32_t>({kBins})),
      scratch(arena.workspace<uint32_t>({1 << 20})) {}

Cost Histogram::cost() const { return {.read = in.bytes(), .written = out.bytes()}; }

void Histogram::check(Checker& checker) const {
  const Counts counts = count(in);
  checker.values("out", out, [&](int64_t v) { return counts[static_cast<size_t>(v)]; });
}

const Experiment<Histogram> histogram{
    .question = "How does a GPU count bytes by value when all threads increment counters all the time?",
    .limit    = Limit::memory,
    // All 256 values equally often; four values only; and one, the worst skew, where all threads increment
    // one counter.
    .axes     = {{"distinct", {256, 4, 1}}, {"n", {268435456}}},
    .check_at = {{"distinct", {256, 1}},
                 {"n", {0, 1, 15, 16, 17, 31, 511, 513, 12287, 12289, 65537, 1000003, 16777259, 60000001}}},
    .variants =
        {
            {.id         = "per_block",
             .launch     = on_gpu(per_block),
             .techniques = {"privatization", "shared_memory"},
             .idea       = "bins in shared memory for each block, added up at its end",
             .prediction = predict::share(0.08)},
            {.id         = "global_atomics",
             .launch     = on_gpu(global_atomics),
             .techniques = {},
             .idea       = "no bins of one's own: an atomic addition in L2 for each byte",
             .prediction = predict::ratio(0.011)},
            {.id         = "vectorized",
             .launch     = on_gpu(vectorized),
             .techniques = {"privatization", "shared_memory", "vectorization"},
             .idea       = "the same, 16 bytes with each load",
             .prediction = predict::share(0.35)},
            {.id         = "per_warp",
             .launch     = on_gpu(per_warp),
             .techniques = {"privatization", "shared_memory", "vectorization"},
             .idea       = "bins for each warp",
             .prediction = predict::share(0.35)},
            {.id         = "per_thread",
             .launch     = on_gpu(per_thread),
             .techniques = {"privatization", "shared_memory", "vectorization", "bank_conflict_avoidance",
                            "software_prefetch"},
             .idea       = "counters of one byte for each thread, in its own bank, without atomics",
             .prediction = predict::share(0.6)},
            {.id         = "cub",
             .launch     = on_gpu(cub_histogram),
             .idea       = "cub::DeviceHistogram::HistogramEven",
             .prediction = predict::share(0.35),
             .kind       = Kind::library},
        },
    .backend = Backend::cuda,
};
FATHOM_REGISTER(histogram);

}  // namespace fathom::lab::histogram
