// Restricts the next token of one sequence, for example to a grammar (grammar/grammar_constraint.h).
#pragma once

#include <memory>
#include <span>

#include "model/tokenizer.h"

namespace fathom::engine {

// Used by one thread at a time.
class Constraint {
 public:
  virtual ~Constraint() = default;
  // A copy in the same state, for another answer to the same request.
  virtual std::unique_ptr<Constraint> clone() const = 0;
  // Sets the logits [V] of disallowed tokens to -infinity. At least one token stays allowed.
  virtual void mask_logits(std::span<float> logits) = 0;
  // `id` was sampled.
  virtual void accept_token(model::TokenId id) = 0;
};

}  // namespace fathom::engine
