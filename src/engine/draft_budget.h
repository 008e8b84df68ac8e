// Decides how many drafted tokens a step verifies, so that drafts are made where they save time.
//
// Verifying n drafted tokens beside the next tokens of B sequences costs t(B, n), drafting included; t(B, 0)
// is a step without drafts. A drafted token is of use with its survival s, the product of the rates at which
// it and those before it are accepted. The step's goodput is (B + sum of s) / t(B, n): tokens are taken by
// falling survival as long as that is above B / t(B, 0). Costs are measured in every step; rates are counted
// by the proposer's confidence and by the place in the draft.
//
// Estimates may be wrong and text may change, so drafts also have a ledger of time: each step pays in kShare
// of what its tokens cost without drafts, and a step with drafts pays in what it gained, or out what it lost.
// A step may draft only if the ledger covers its loss should no draft be right. So for any text all steps
// together take at most 1 + kShare of their time without drafts, and kGrant steps more, as far as costs are
// what was measured: of a step that takes more than twice its estimate, the rest is put down to the machine.
// Gains beyond kMost steps are not kept: they cannot pay for a long bad phase.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/proposer.h"

namespace fathom::engine {

class DraftBudget {
 public:
  static constexpr double kShare = 0.015, kGrant = 4, kMost = 8;
  static constexpr int64_t kProbeSteps = 64;  // between looks at what is not chosen at the time

  // `longest`: tokens of a draft at most.
  explicit DraftBudget(int64_t longest) : longest_(longest) {}

  // Tokens of a draft that are worth asking for in a step that decodes `sequences`; 0: drafts do not pay now.
  int64_t draft_length(int64_t sequences) const;
  // How many tokens of each draft to verify, together at most `room`. One draft for each decoding
  // sequence, empty where there is none.
  std::vector<int64_t> choose(std::span<const Draft> drafts, int64_t room);

  // Of a verified draft of those confidences, `accepted` tokens were right.
  void verified(std::span<const float> confidence, int64_t accepted);
  struct Step {
    int64_t sequences = 0;      // that decoded
    bool asked        = false;  // the proposer was asked for drafts
    int64_t drafted = 0, accepted = 0;
    double seconds = 0;
  };
  void took(const Step& step);

  double balance() const { return balance_; }  // of the ledger, in seconds
  // Estimates: seconds of a step, and the share of such tokens that is accepted. More tokens than were
  // measured are taken to cost what the measured ones do each, and by `most_cost` what a sequence's own token
  // does.
  double cost(int64_t sequences, int64_t drafted) const;
  double most_cost(int64_t sequences, int64_t drafted) const;
  double rate(double confidence, int64_t place) const;

 private:
  static constexpr int64_t kMostDrafted = 64, kPlaces = 16;
  static constexpr size_t kBins = 8;

  struct Costs {  // of steps of one number of sequences
    std::vector<double> seconds =
        std::vector<double>(kMostDrafted + 1);  // by drafted tokens; 0: not measured
    int64_t plain_steps = 0,
            steps_asked = 0;  // not asking for drafts, in all; asking, since one that did not
  };
  struct Rate {
    double hits = 0, tries = 0;
    void count(bool hit);
    double mean(double expected) const;  // as if `expected` had been seen in two tries
  };

  const Costs* costs_of(int64_t sequences) const;
  // The largest number of drafted tokens up to `drafted` whose cost is measured, 0 at least.
  static int64_t measured_below(const Costs& costs, int64_t drafted);
  bool probing() const { return steps_undrafted_ >= kProbeSteps; }

  const int64_t longest_;
  std::vector<Costs> costs_;  // by sequences
  std::array<std::array<Rate, 4>, kBins> by_confidence_;
  std::array<Rate, kPlaces> by_place_;
  int64_t steps_undrafted_ = kProbeSteps;
  double balance_          = 0;
  bool granted_            = false;
};

}  // namespace fathom::engine
