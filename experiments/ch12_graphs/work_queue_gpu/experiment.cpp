// Equal numbers of uneven items are not equal work. On a GPU the block scheduler is a queue in hardware, and
// an atomic counter is one in software. What does each cost, and what does each gain over a static partition?
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/rng.h"
#include "walks.h"

namespace fathom::lab::work_queue_gpu {
namespace {

// A heavy tail (Pareto with exponent 1.5 from 8 steps on, cut at 1024) and a trend: the last items cost four
// times as much as the first. ch12/work_queue_cpu has the same, with a longer tail.
void uneven_lengths(uint32_t* length, int64_t n, uint64_t seed) {
  constexpr double kLongest = 1024;
  std::vector<double> u(static_cast<size_t>(n));
  fill_uniform(u.data(), n, seed, 0, 1);
  for (int64_t i = 0; i < n; ++i) {
    const double tail  = std::pow(1 - u[static_cast<size_t>(i)], -1 / 1.5);
    const double trend = 1 + 3 * static_cast<double>(i) / static_cast<double>(n);
    length[i]          = static_cast<uint32_t>(std::min(8 * tail * trend, kLongest));
  }
}

}  // namespace

Walks::Walks(const Point& at, Arena& arena)
    : start(arena.input<uint32_t>({at["items"]}, Uniform{1, 0x1p32})),
      length(arena.input<uint32_t>({at["items"]}, generate<uint32_t>(uneven_lengths))),
      out(arena.output<uint32_t>({at["items"]})),
      next(arena.workspace<uint32_t>({1})) {
  FATHOM_EXPECT(at["items"] <= int64_t{1} << 31, "the queue's counter has 32 bits");
}

Cost Walks::cost() const { return {.read = start.bytes() + length.bytes(), .written = out.bytes()}; }

uint32_t Walks::expected(int64_t i) const {
  uint64_t sum = 0;
  for (uint64_t lane = 0; lane < 32; ++lane) {
    uint64_t x = (start(i) + lane) % (uint64_t{1} << 32);
    for (int64_t s = length(i); s > 0; --s) {
      x = (x ^ (x * 8192)) % (uint64_t{1} << 32);
      x = x ^ (x / 131072);
      x = (x ^ (x * 32)) % (uint64_t{1} << 32);
    }
    sum += x;
  }
  return static_cast<uint32_t>(sum % (uint64_t{1} << 32));
}

const Experiment<Walks> walks{
    .question =
        "What does uneven work cost on a GPU when it is split in advance, and what does a queue cost that "
        "balances it: the block scheduler's, or an atomic counter with tickets of 1, 8 or 32 items?",
    .limit = Limit::none,
    .axes  = {{"items", {1 << 20, 1 << 16}}},
    // A block has 8 warps; tickets are 8 and 32 items. 40009: more items than warps on the GPU.
    .check_at = {{"items", {0, 1, 7, 8, 9, 31, 32, 33, 257, 40009}}},
    .variants =
        {
            {.id         = "grid_stride",
             .launch     = on_gpu(grid_stride),
             .techniques = {"persistent_kernel"},
             .idea       = "a persistent grid: warp w of W takes items w, w + W, ..."},
            {.id         = "one_warp_each",
             .launch     = on_gpu(one_warp_each),
             .techniques = {},
             .idea       = "as many blocks as the items need; the hardware's scheduler balances",
             .prediction = predict::ratio_at_least(1.0)},
            // A million additions to one address, at about one a nanosecond, take longer than the walks.
            {.id         = "atomic_queue",
             .launch     = on_gpu(atomic_queue),
             .techniques = {"persistent_kernel", "work_queue"},
             .idea       = "each warp takes the next item from an atomic counter",
             .prediction = predict::ratio_at_least(0.5)},
            {.id         = "tickets_of_8",
             .launch     = on_gpu(tickets_of_8),
             .techniques = {"persistent_kernel", "work_queue", "batched_atomics"},
             .idea       = "8 items for each atomic addition",
             .prediction = predict::ratio_at_least(1.1)},
            {.id         = "tickets_of_32",
             .launch     = on_gpu(tickets_of_32),
             .techniques = {"persistent_kernel", "work_queue", "batched_atomics"},
             .idea       = "32 items for each atomic addition",
             .prediction = predict::ratio_at_least(1.1)},
        },
    .backend = Backend::cuda,
    .catalog = {"graphs-006", "graphs-007", "graphs-011"},
};
FATHOM_REGISTER(walks);

}  // namespace fathom::lab::work_queue_gpu
