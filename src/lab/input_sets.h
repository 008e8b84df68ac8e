// The input sets of a point: several problems of the same point, filled from seeds that no two fills share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lab/experiment_info.h"
#include "lab/verified_call.h"

namespace fathom::lab {

// A seed for every purpose of a run, none used twice.
class Seeds {
 public:
  explicit Seeds(uint64_t run_seed) : run_(run_seed) {}
  uint64_t next() { return at(run_, ++count_); }
  static uint64_t at(uint64_t run_seed, uint64_t count);

 private:
  uint64_t run_;
  uint64_t count_ = 0;
};

class InputSets {
 public:
  InputSets(const ExperimentInfo& experiment, const Point& at, int count, Seeds& seeds);
  int size() const { return static_cast<int>(problems_.size()); }
  Problem& operator[](int set) { return *problems_[set]; }
  const SeedHistory& history(int set) const { return histories_[set]; }
  uint64_t checksum(int set) const { return checksums_[set]; }  // of the inputs as they were filled
  void refill(int set);                                         // from a fresh seed
  void refill_with(int set, uint64_t seed);
  // Runs the variant's prepare() on set 0 under a seed of its own and hands its launch to every set;
  // nanoseconds.
  int64_t prepare(int variant, Context& context);
  std::optional<Caught> overlap();

 private:
  Seeds& seeds_;
  std::vector<std::unique_ptr<Problem>> problems_;
  std::vector<SeedHistory> histories_;
  std::vector<uint64_t> checksums_;
};

}  // namespace fathom::lab
