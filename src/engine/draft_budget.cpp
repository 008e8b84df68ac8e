#include "engine/draft_budget.h"

#include <algorithm>
#include <cmath>

namespace fathom::engine {
namespace {

constexpr double kNew        = 0.125;  // weight of a new measurement of a cost
constexpr double kOutlier    = 2;      // times the estimate: what a step took longer was not its drafts
const double kFade           = std::exp2(-1.0 / 256);  // of the weight of a count, at each newer one
constexpr double kUnseen     = 0.6;   // expected rate of acceptance before anything was drafted
constexpr int64_t kSettled   = 4;     // steps from which on a cost is an average
constexpr double kUnseenCost = 0.25;  // of a drafted token, in sequences' own tokens, before any was measured
constexpr int64_t kProbed    = 2;     // tokens drafted to see whether drafts would pay

size_t bin_of(double confidence, size_t bins) {
  return static_cast<size_t>(
      std::clamp(confidence * static_cast<double>(bins), 0.0, static_cast<double>(bins - 1)));
}

}  // namespace

void DraftBudget::Rate::count(bool hit) {
  hits  = hits * kFade + hit;
  tries = tries * kFade + 1;
}

double DraftBudget::Rate::mean(double expected) const { return (hits + 2 * expected) / (tries + 2); }

// A place of which little was seen is taken to be as good as the one before, so that longer drafts are tried.
double DraftBudget::rate(double confidence, int64_t place) const {
  const auto& places = by_confidence_[bin_of(confidence, kBins)];
  double expected    = confidence;
  for (int64_t p = 0; p <= std::min<int64_t>(place, 3); ++p)
    expected = places[static_cast<size_t>(p)].mean(expected);
  return expected;
}

const DraftBudget::Costs* DraftBudget::costs_of(int64_t sequences) const {
  return sequences < std::ssize(costs_) ? &costs_[static_cast<size_t>(sequences)] : nullptr;
}

int64_t DraftBudget::measured_below(const Costs& costs, int64_t drafted) {
  int64_t below = std::min(drafted, kMostDrafted);
  while (below > 0 && costs.seconds[static_cast<size_t>(below)] == 0) --below;
  return below;
}

double DraftBudget::cost(int64_t sequences, int64_t drafted) const {
  const Costs* costs = costs_of(sequences);
  if (!costs || costs->plain_steps == 0) return 0;
  drafted             = std::min(drafted, kMostDrafted);
  const int64_t below = measured_below(*costs, drafted);
  const double low = costs->seconds[static_cast<size_t>(below)], plain = costs->seconds[0];
  if (below == drafted) return low;
  const auto beyond = static_cast<double>(drafted - below);
  int64_t above     = drafted + 1;
  while (above <= kMostDrafted && costs->seconds[static_cast<size_t>(above)] == 0) ++above;
  if (above <= kMostDrafted)
    return low +
           (costs->seconds[static_cast<size_t>(above)] - low) * beyond / static_cast<double>(above - below);
  const double each = below > 0 ? std::max(low - plain, 0.0) / static_cast<double>(below)
                                : kUnseenCost * plain / static_cast<double>(sequences);
  return low + beyond * each;
}

double DraftBudget::most_cost(int64_t sequences, int64_t drafted) const {
  const Costs* costs = costs_of(sequences);
  if (!costs || costs->plain_steps == 0) return 0;
  const int64_t below = measured_below(*costs, drafted);
  const double bound  = costs->seconds[static_cast<size_t>(below)] + static_cast<double>(drafted - below) *
                                                                        costs->seconds[0] /
                                                                        static_cast<double>(sequences);
  return std::max(bound, cost(sequences, drafted));
}

int64_t DraftBudget::draft_length(int64_t sequences) const {
  const Costs* costs = costs_of(sequences);
  if (!costs || costs->plain_steps < kSettled) return 0;  // what drafts must beat is not known
  if (costs->steps_asked >= kProbeSteps) return 0;        // it may have changed
  const double plain = costs->seconds[0];
  if (most_cost(sequences, 1) - plain > balance_) return 0;
  const auto B  = static_cast<double>(sequences);
  double gained = 0, survival = 1, rate_there = kUnseen, best = B / plain;
  int64_t length = 0;
  for (int64_t k = 1; k <= longest_; ++k) {
    survival *= rate_there = by_place_[static_cast<size_t>(std::min(k, kPlaces) - 1)].mean(rate_there);
    gained += survival;
    // All sequences draft as many, or only one does.
    const double all = (B + B * gained) / cost(sequences, k * sequences),
                 one = (B + gained) / cost(sequences, k);
    if (std::max(all, one) > best) best = std::max(all, one), length = k;
  }
  if (length == 0) return probing() ? std::min(kProbed, longest_) : 0;
  return std::min(longest_, length + kProbed);  // so that a longer one is tried
}

std::vector<int64_t> DraftBudget::choose(std::span<const Draft> drafts, int64_t room) {
  struct Candidate {
    double survival;
    size_t draft;
  };
  std::vector<Candidate> candidates;
  for (size_t d = 0; d < drafts.size(); ++d) {
    double survival = 1;
    for (int64_t place = 0; place < drafts[d].size(); ++place)
      candidates.push_back(
          {survival *= rate(static_cast<double>(drafts[d].confidence[static_cast<size_t>(place)]), place),
           d});
  }
  // Survival falls along a draft, and of equal ones the order stays: those chosen are beginnings of drafts.
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.survival > b.survival; });

  std::vector<int64_t> lengths(drafts.size());
  if (candidates.empty()) {  // a draft that is not found is one that is not right
    by_place_[0].count(false);
    steps_undrafted_ = 0;
    return lengths;
  }
  const auto sequences = std::ssize(drafts);
  const Costs* costs   = costs_of(sequences);
  if (!costs || costs->plain_steps < kSettled) return lengths;
  const double plain = costs->seconds[0];
  const auto B       = static_cast<double>(sequences);
  const auto most    = std::min(room, std::ssize(candidates));
  const bool probes  = probing();
  double gained = 0, best = B / plain;
  int64_t chosen = 0;
  for (int64_t n = 1; n <= most; ++n) {
    if (most_cost(sequences, n) - plain > balance_) break;
    gained += candidates[static_cast<size_t>(n - 1)].survival;
    const double goodput = (B + gained) / cost(sequences, n);
    if (goodput > best || (probes && n <= kProbed && chosen == n - 1))
      best = std::max(best, goodput), chosen = n;
  }
  for (int64_t n = 0; n < chosen; ++n) ++lengths[candidates[static_cast<size_t>(n)].draft];
  return lengths;
}

void DraftBudget::verified(std::span<const float> confidence, int64_t accepted) {
  for (int64_t place = 0; place < std::min(accepted + 1, std::ssize(confidence)); ++place) {
    const bool hit   = place < accepted;
    const size_t bin = bin_of(static_cast<double>(confidence[static_cast<size_t>(place)]), kBins);
    by_confidence_[bin][static_cast<size_t>(std::min<int64_t>(place, 3))].count(hit);
    by_place_[static_cast<size_t>(std::min(place, kPlaces - 1))].count(hit);
  }
}

void DraftBudget::took(const Step& step) {
  const int64_t B = step.sequences;
  if (std::ssize(costs_) <= B) costs_.resize(static_cast<size_t>(B) + 1);
  Costs& costs     = costs_[static_cast<size_t>(B)];
  const bool plain = !step.asked;
  if (!plain && costs.plain_steps == 0) return;
  const double expected = most_cost(B, step.drafted);
  const double seconds  = expected > 0 ? std::min(step.seconds, kOutlier * expected) : step.seconds;
  if (plain || step.drafted > 0) {
    double& estimate = costs.seconds[static_cast<size_t>(std::min(step.drafted, kMostDrafted))];
    if (plain && costs.plain_steps < kSettled)
      estimate = estimate == 0 ? seconds : std::min(estimate, seconds);  // the first steps are slow ones
    else
      estimate = estimate == 0 ? seconds : estimate + kNew * (seconds - estimate);
  }
  const double tokens = static_cast<double>(B + step.accepted) / static_cast<double>(B);
  if (plain) {
    if (!granted_) balance_ = kGrant * seconds, granted_ = true;
    ++costs.plain_steps, ++steps_undrafted_;
    costs.steps_asked = 0;
    balance_ += kShare * seconds;
  } else {
    ++costs.steps_asked;
    if (step.drafted > 0) steps_undrafted_ = 0;
    balance_ += (1 + kShare) * tokens * costs.seconds[0] - seconds;
  }
  balance_ = std::min(balance_, kMost * costs.seconds[0]);
}

}  // namespace fathom::engine
