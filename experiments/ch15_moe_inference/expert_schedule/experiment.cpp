// Routers favour some experts, so blocks of equal shape have unequal work, and the GPU starts them as they
// are numbered. If a long one starts last, its multiprocessor works alone. What does a better order gain?
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/rng.h"
#include "expert_blocks.h"
#include "lab/metric.h"

namespace fathom::lab::expert_schedule {
namespace {

// Popularity falls as 1 / sqrt(rank): of 64 experts the first has 4.4 times the mean, the last 0.55. Which
// expert has which rank is drawn.
Generate ragged_offsets(int64_t rows) {
  return generate<int32_t>([rows](int32_t* first, int64_t n, uint64_t seed) {
    const int64_t experts = n - 1;
    std::vector<int64_t> rank(static_cast<size_t>(experts));
    fill_permutation(rank.data(), experts, seed, experts);
    std::vector<double> before = {0};  // popularity of the experts before this one
    for (const int64_t r : rank) before.push_back(before.back() + 1 / std::sqrt(static_cast<double>(r + 1)));
    for (size_t e = 0; e < before.size(); ++e)
      first[e] = static_cast<int32_t>(std::llround(before[e] / before.back() * static_cast<double>(rows)));
  });
}

}  // namespace

ExpertBlocks::ExpertBlocks(const Point& at, Arena& arena)
    : first(arena.input<int32_t>({at["experts"] + 1}, ragged_offsets(at["rows"]))),
      x(arena.input<float>({at["rows"], at["depth"]}, Uniform{-1, 1})),
      w(arena.input<float>({at["experts"], at["depth"], at["columns"]}, Uniform{-1, 1})),
      out(arena.output<float>({at["rows"], at["columns"]})),
      times(arena.output<double>({at["experts"] * at["columns"] / kSlice, 3})),
      tickets(arena.workspace<uint32_t>({1})) {
  FATHOM_EXPECT(at["experts"] >= 1 && at["experts"] <= kMostExperts, "1 to 256 experts");
  FATHOM_EXPECT(at["depth"] >= 4 && at["depth"] % 4 == 0 && at["depth"] <= kMostDepth,
                "the depth is a multiple of 4, at most 1024: a slice lies in shared memory");
  FATHOM_EXPECT(at["columns"] >= kSlice && at["columns"] % kSlice == 0, "columns are a multiple of 32");
  FATHOM_EXPECT(at["rows"] <= INT32_MAX / 2, "rows are counted in 32 bits");
}

Cost ExpertBlocks::cost() const {
  return {.read    = first.bytes() + x.bytes() + w.bytes(),
          .written = out.bytes(),
          .flops   = 2.0 * static_cast<double>(x.size()) * static_cast<double>(w.extent(2))};
}

Sum ExpertBlocks::expected(int64_t i, int64_t j) const {
  const int32_t* const begin = first.data();
  const int64_t e            = std::upper_bound(begin, begin + first.size(), i) - begin - 1;
  Sum sum{.length = x.extent(1)};
  for (int64_t k = 0; k < x.extent(1); ++k) {
    const double product = static_cast<double>(x(i, k)) * w(e, k, j);
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

void ExpertBlocks::metrics(CallMetrics& metrics) const {
  double begin = INFINITY, end = 0, busy = 0;
  std::map<double, double> last_end;  // of a multiprocessor
  for (int64_t unit = 0; unit < times.extent(0); ++unit) {
    begin = std::min(begin, times(unit, 0));
    end   = std::max(end, times(unit, 1));
    busy += times(unit, 1) - times(unit, 0);
    double& last = last_end[times(unit, 2)];
    last         = std::max(last, times(unit, 1));
  }
  if (!(end > begin)) return;
  double first_idle = end;
  for (const auto& [multiprocessor, last] : last_end) first_idle = std::min(first_idle, last);
  metrics["tail_ns"]              = {end - first_idle, "lower"};
  metrics["busy_multiprocessors"] = {busy / (end - begin), "higher"};
}

namespace {

const Experiment<ExpertBlocks> schedule{
    .question =
        "What does it cost when blocks of popular experts start last, and what do an order by length and a "
        "queue of tickets win back?",
    .limit = Limit::flops,
    // 1024 blocks, 7.8 for each of 132 multiprocessors; a block of the likeliest expert is 4.4 of the mean.
    .axes     = {{"columns", {512, 256}}, {"experts", {64}}, {"rows", {16384}}, {"depth", {1024}}},
    .check_at = {{"columns", {32, 96}},
                 {"experts", {1, 7, 64}},
                 {"rows", {0, 1, 127, 1000}},
                 {"depth", {4, 36, 1024}}},
    .variants = {{.id         = "in_order",
                  .launch     = on_gpu(in_order),
                  .techniques = {"grouped_experts", "tiling_in_shared_memory"},
                  .idea       = "one grid, experts as they are numbered",
                  .prediction = predict::share(0.35)},
                 {.id         = "longest_first",
                  .launch     = on_gpu(longest_first),
                  .techniques = {"grouped_experts", "tiling_in_shared_memory", "load_balancing"},
                  .idea       = "the same grid, experts with the most rows first",
                  .prediction = predict::ratio(1.15)},
                 {.id         = "ticket_queue",
                  .launch     = on_gpu(ticket_queue),
                  .techniques = {"grouped_experts", "tiling_in_shared_memory", "load_balancing",
                                 "persistent_kernel", "work_queue"},
                  .idea       = "resident blocks draw tickets, the most rows first",
                  .prediction = predict::ratio(1.15)}},
    .backend  = Backend::cuda,
    .catalog  = {"occupancy-009"},
    .group    = "grouped_experts",
};
FATHOM_REGISTER(schedule);

}  // namespace
}  // namespace fathom::lab::expert_schedule
