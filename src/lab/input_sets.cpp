#include "lab/input_sets.h"

#include "core/splitmix64.h"
#include "lab/devices.h"
#include "measure/clock.h"

namespace fathom::lab {
uint64_t Seeds::at(uint64_t run_seed, uint64_t count) {
  return splitmix64(run_seed + kSplitmix64Increment * count);
}

InputSets::InputSets(const ExperimentInfo& experiment, const Point& at, int count, Seeds& seeds)
    : seeds_(seeds), histories_(count), checksums_(count) {
  for (int set = 0; set < count; ++set) {
    problems_.push_back(experiment.make(at, device_of(experiment), nullptr));
    if (set > 0) problems_[set]->share_twin_of(*problems_[0]);
    refill(set);
  }
}

void InputSets::refill(int set) { refill_with(set, seeds_.next()); }

void InputSets::refill_with(int set, uint64_t seed) {
  SeedHistory& history = histories_[set];
  if (history.present != 0 && history.present != seed) history.earlier.push_back(history.present);
  history.present = seed;
  problems_[set]->arena().fill(seed);
  checksums_[set] = problems_[set]->arena().input_checksum();
}

int64_t InputSets::prepare(int variant, Context& context) {
  const uint64_t seed = seeds_.next();
  refill_with(0, seed);
  for (SeedHistory& history : histories_) history.prepared = seed;
  problems_[0]->arena().poison(0);
  const int64_t start = measure::now_ns(measure::Clock::wall);
  problems_[0]->prepare(variant, context);
  const int64_t elapsed = measure::now_ns(measure::Clock::wall) - start;
  for (int set = 1; set < size(); ++set) problems_[set]->bind(variant, *problems_[0]);
  refill(0);
  return elapsed;
}

std::optional<Caught> InputSets::overlap() {
  for (auto& problem : problems_)
    if (const auto found = problem->arena().overlap()) return Caught{Outcome::wrong, "overlap", *found};
  return std::nullopt;
}

}  // namespace fathom::lab
