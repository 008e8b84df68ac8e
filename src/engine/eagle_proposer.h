// Drafts by a draft model that reads the target's hidden states (model/eagle.h).
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/view.h"
#include "engine/proposer.h"
#include "model/eagle.h"

namespace fathom::engine {

// The runner hands it the residuals of every row that it computes. They are read when a draft is asked for,
// so that those of rejected drafts never are, and only those of the last positions: the draft model attends
// to no more.
class EagleProposer final : public Proposer {
 public:
  static constexpr double kLeastProbability = 0.1;  // of a draft as a whole

  explicit EagleProposer(std::unique_ptr<model::Eagle> drafter) : drafter_(std::move(drafter)) {}

  const std::vector<int64_t>& taps() const { return drafter_->taps(); }
  int64_t weight_bytes() const { return drafter_->weight_bytes(); }
  // The residuals [T, taps H] of a sequence's positions first .. first + T. Not while propose() or finished()
  // runs.
  void computed(RequestId sequence, int64_t first, View<const float, 2> features);

  Draft propose(const Sequence& sequence, int64_t count) override;
  void finished(const Sequence& sequence) override { read_.erase(sequence.id); }

 private:
  struct Reader {
    model::Eagle::State state;
    int64_t first = 0;            // position of the first of `features`
    std::vector<float> features;  // not read yet, or of drafts that were rejected
  };

  const std::unique_ptr<model::Eagle> drafter_;
  std::unordered_map<RequestId, Reader> read_;
};

}  // namespace fathom::engine
