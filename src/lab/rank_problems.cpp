#include "lab/rank_problems.h"

#include <stdexcept>

#include "lab/input_sets.h"

namespace fathom::lab {

RankProblems::RankProblems(const ExperimentInfo& experiment, const Point& at, int sets, uint64_t run_seed,
                           RankGroup& group, const Rank& me)
    : experiment_(experiment), at_(at), run_seed_(run_seed), group_(group), me_(me) {
  for (int set = 0; set < sets; ++set) {
    own_.push_back(experiment.make(at, me.device(), &me));
    if (set > 0) own_[static_cast<size_t>(set)]->share_twin_of(*own_[0]);
  }
  fills_.resize(own_.size());
  others_.resize(static_cast<size_t>(group.size()));
}

void RankProblems::refill(int64_t set, uint64_t fill) {
  fills_[static_cast<size_t>(set)] = fill;
  (*this)[set].arena().fill(seed_of(me_.rank(), fill));
}

std::vector<const Problem*> RankProblems::of_all_ranks(int64_t set) {
  Problem& mine = (*this)[set];
  std::vector<const Problem*> all;
  if (group_.ranks_as() == RanksAs::devices) {
    mine.copy_to_host();
    group_.slot(me_.rank()).problem = &mine;
    group_.barrier();
    for (int rank = 0; rank < group_.size(); ++rank) all.push_back(group_.slot(rank).problem);
    return all;
  }
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (rank == me_.rank()) {
      all.push_back(&mine);
      continue;
    }
    Problem& other = other_rank(rank);
    other.arena().fill(seed_of(rank, fills_[static_cast<size_t>(set)]));
    other.copy_to_host();
    all.push_back(&other);
  }
  return all;
}

uint64_t RankProblems::seed_of(int rank, uint64_t fill) const {
  return Seeds::at(run_seed_, fill * kMaxRanks + static_cast<uint64_t>(rank) + 1);
}

Problem& RankProblems::other_rank(int rank) {
  auto& other = others_[static_cast<size_t>(rank)];
  if (!other) {
    ranks_.emplace_back(rank, group_.size(), me_.device(), me_.shared(),
                        [] { throw std::logic_error("a problem's constructor may not wait for ranks"); });
    other = experiment_.make(at_, me_.device(), &ranks_.back());
  }
  return *other;
}

}  // namespace fathom::lab
