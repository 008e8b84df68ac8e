// The shape "ranked": n processes do one step together, and the step takes as long as its slowest rank.
//
// Every step carries a nonce for each rank, and every rank must come to know the sum of all of them: a step
// that did not really meet the other ranks cannot. (Two processes on one machine today; a rank per GPU and
// per host build on this.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lab/experiment.h"
#include "lab/runner.h"

namespace fathom::lab {

// What one rank sees of the group.
class Rank {
 public:
  Rank(int rank, int size, std::span<std::byte> shared, std::function<void()> barrier)
      : rank_(rank), size_(size), shared_(shared), barrier_(std::move(barrier)) {}
  int rank() const { return rank_; }
  int size() const { return size_; }
  std::span<std::byte> shared() const {
    return shared_;
  }  // memory of the whole group; zero before the first step
  void barrier() const { barrier_(); }

 private:
  int rank_, size_;
  std::span<std::byte> shared_;
  std::function<void()> barrier_;
};

struct RankedVariant {
  std::string id;
  // One step on one rank: does the collective work, and returns the sum (mod 2^64) of every rank's nonce.
  std::function<uint64_t(const Point&, const Rank&, uint64_t nonce)> step;
  std::vector<std::string> techniques;
  std::string idea;
  Prediction prediction = {};
};

struct RankedExperiment {
  std::string question;
  int ranks            = 2;
  int64_t shared_bytes = 4096;
  std::vector<Axis> axes;
  std::vector<RankedVariant> variants;
  std::vector<std::string> catalog = {};
};

ExperimentInfo info_of(const RankedExperiment& experiment);
void measure_ranked(const ExperimentInfo& experiment, const MeasureOptions& options, Events& events);

}  // namespace fathom::lab
