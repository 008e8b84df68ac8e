// The problems of a point as one rank has them: its own input sets, and for references those of all ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "lab/experiment_info.h"
#include "lab/rank.h"
#include "lab/rank_group.h"

namespace fathom::lab {

class RankProblems {
 public:
  RankProblems(const ExperimentInfo& experiment, const Point& at, int sets, uint64_t run_seed,
               RankGroup& group, const Rank& me);

  int sets() const { return static_cast<int>(own_.size()); }
  Problem& operator[](int64_t set) { return *own_[static_cast<size_t>(set)]; }

  // `fill` counts the fills of a run, the same on all ranks; every rank has inputs of its own.
  void refill(int64_t set, uint64_t fill);
  uint64_t seed(int64_t set) const { return seed_of(me_.rank(), fills_[static_cast<size_t>(set)]); }

  // The problems of all ranks with the inputs of that set, in host memory. All ranks call it together.
  // Threads show each other theirs; processes make the inputs of the others again, from their seeds.
  std::vector<const Problem*> of_all_ranks(int64_t set);

 private:
  uint64_t seed_of(int rank, uint64_t fill) const;
  Problem& other_rank(int rank);

  const ExperimentInfo& experiment_;
  Point at_;
  uint64_t run_seed_;
  RankGroup& group_;
  const Rank& me_;
  std::deque<Rank> ranks_;
  std::vector<std::unique_ptr<Problem>> own_, others_;
  std::vector<uint64_t> fills_;
};

}  // namespace fathom::lab
