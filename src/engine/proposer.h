// Proposes drafts: tokens that may come next, which the model verifies in one step (rejection_sampler.h). A
// draft never changes an answer, only how many steps the answer takes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/config.h"
#include "engine/sequence.h"

namespace fathom::engine {

struct Draft {
  std::vector<model::TokenId> tokens;
  // Of each token, in [0, 1]: how likely its proposer finds it if the tokens before it are right.
  std::vector<float> confidence;

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  void add(model::TokenId token, double how_likely) {
    tokens.push_back(token);
    confidence.push_back(static_cast<float>(how_likely));
  }
  void truncate(int64_t length) {
    if (length >= size()) return;
    tokens.resize(static_cast<size_t>(length));
    confidence.resize(static_cast<size_t>(length));
  }
  // Drafts that are right in a row, as expected by the proposer.
  double expected() const {
    double sum = 0, survival = 1;
    for (const float p : confidence) sum += survival *= static_cast<double>(p);
    return sum;
  }
};

class Proposer {
 public:
  virtual ~Proposer() = default;

  // At most `count` tokens that may follow the sequence's. All tokens of the sequence are known.
  virtual Draft propose(const Sequence& sequence, int64_t count) = 0;
  // The sequence has ended.
  virtual void finished(const Sequence&) {}
};

// A proposer that needs no model: n-gram or suffix. Null where the configuration asks for neither.
std::unique_ptr<Proposer> make_proposer(const EngineConfig& config);

}  // namespace fathom::engine
