// Constrains generation to JSON of a grammar, followed by an end token.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/constraint.h"
#include "grammar/json_matcher.h"
#include "grammar/vocabulary_trie.h"

namespace fathom::grammar {

// Tokens are byte strings. Every tokenization of a valid text is allowed, also one that cuts a character or
// an escape. Every byte is a token, so some token is always allowed.
class GrammarConstraint : public engine::Constraint {
 public:
  // `end_ids`: tokens allowed once the value is complete. At least one, all in the vocabulary.
  GrammarConstraint(std::shared_ptr<const VocabularyTrie> trie, std::shared_ptr<const JsonGrammar> grammar,
                    std::vector<model::TokenId> end_ids);

  std::unique_ptr<engine::Constraint> clone() const override {
    return std::make_unique<GrammarConstraint>(*this);
  }
  // logits [V], with the trie's V.
  void mask_logits(std::span<float> logits) override;
  // Precondition: mask_logits() allows `id`. After an end id only end ids are allowed.
  void accept_token(model::TokenId id) override;

 private:
  void fill_token_mask();
  void fill_in_strings(std::span<const JsonMatcher::OpenString> strings);

  std::shared_ptr<const VocabularyTrie> trie_;
  std::vector<model::TokenId> end_ids_;
  JsonMatcher matcher_;
  bool ended_ = false;
  std::vector<uint8_t> token_mask_;  // [V], scratch: 1 where a token is allowed
};

// Sets logits to -infinity where `mask` [V] is 0; it is 1 elsewhere.
void apply_token_mask(std::span<const uint8_t> mask, std::span<float> logits);

}  // namespace fathom::grammar
