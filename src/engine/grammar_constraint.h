// A grammar as a constraint on tokens: what is generated is JSON of that grammar and then its end.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/generator.h"
#include "engine/json_grammar.h"
#include "engine/token_trie.h"

namespace fathom::engine {

// Tokens are byte strings: any cut of the text into tokens may come, also within a character or an escape.
// Since every byte is a token of its own, there is always one that may.
class GrammarConstraint : public Constraint {
 public:
  // `end_ids`: what may come once the value is complete; at least one, each below the vocabulary's end.
  GrammarConstraint(std::shared_ptr<const TokenTrie> trie, std::shared_ptr<const JsonGrammar> grammar,
                    std::vector<model::TokenId> end_ids);

  std::unique_ptr<Constraint> clone() const override { return std::make_unique<GrammarConstraint>(*this); }
  // logits [V], V as the trie's.
  void restrict(std::span<float> logits) override;
  // Precondition: restrict() would have left it. After an end id only end ids may come.
  void accept(model::TokenId id) override;

 private:
  void allow_tokens();
  void allow_in_strings(std::span<const JsonMatcher::OpenString> strings);

  std::shared_ptr<const TokenTrie> trie_;
  std::vector<model::TokenId> end_ids_;
  JsonMatcher matcher_;
  bool ended_ = false;
  std::vector<uint8_t> allowed_;  // [V], scratch
};

// Sets those to -infinity whose id is not `allowed` [V], which is 0 or 1.
void keep_allowed(std::span<const uint8_t> allowed, std::span<float> logits);

}  // namespace fathom::engine
