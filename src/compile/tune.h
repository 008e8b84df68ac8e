// Autotuning: the fastest schedule of each launch of a plan, by time, as torch.compile's max-autotune picks
// kernels. A candidate is first compared with the default bit by bit, then timed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "compile/schedule.h"
#include "search/strategies.h"

namespace fathom::compile {

struct TuneOptions {
  double seconds = 0.5;  // for all of it, on the clock; at least one round of everything is made
  // Every candidate where the time suffices, else local search: kept apart for experiments.
  std::optional<search::Strategy> strategy = std::nullopt;
};

struct Tuned {
  Schedules schedules;  // the default's where no other was faster beyond noise
  // Medians of calls with the default and with the best candidates in turn, on numbers of the tuner's own,
  // which lie in caches as far as they fit.
  double default_ns = 0, best_ns = 0;
  bool faster   = false;  // the 95 % interval of their ratio lies above 1
  int64_t tried = 0;      // candidates
  int64_t of    = 0;      // that there are

  bool operator==(const Tuned&) const = default;
};

// Candidates are applied to all launches at once, and each launch keeps its own best; the sum of these is
// then compared with the default, in turn.
Tuned tune(const Graph& graph, const Plan& plan, std::span<const int64_t> symbols, ThreadPool& pool,
           const TuneOptions& options = {});

// The axes of this plan: "block" where there is a tape, "chunk" where a matmul is finished in chunks,
// "threads" where there are several.
search::TuningSpace tuning_space(const Graph& graph, const Plan& plan, int threads);

}  // namespace fathom::compile
