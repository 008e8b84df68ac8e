// Which tokens may come next in one sequence: a grammar, say, that follows the output token by token.
#pragma once

#include <memory>
#include <span>

#include "model/tokenizer.h"

namespace fathom::engine {

// Used by one thread at a time.
class Constraint {
 public:
  virtual ~Constraint() = default;
  // Another one that is as far as this one: for the next of several answers to one request.
  virtual std::unique_ptr<Constraint> clone() const = 0;
  // Sets the logits [V] of tokens that may not come next to -infinity; leaves at least one that may.
  virtual void restrict(std::span<float> logits) = 0;
  // `id` came next.
  virtual void accept(model::TokenId id) = 0;
};

}  // namespace fathom::engine
