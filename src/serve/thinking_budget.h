// Limits how many tokens a harmony model spends on reasoning before it answers in free text. Answers in a
// given format have the same limit in structured_output.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/constraint.h"
#include "model/harmony.h"
#include "model/tokenizer.h"

namespace fathom::serve {

// For the answer to a prompt that ends with <|start|>assistant. Restricts nothing until `budget` tokens have
// gone to messages on the analysis channel, or between them. Then it ends the message, begins the next one
// and forbids that it is an analysis: the answer or a call follows.
class ThinkingBudget : public engine::Constraint {
 public:
  // `next_message`: the tokens of <|start|>assistant. The tokenizer must outlive it and its clones.
  ThinkingBudget(const model::Tokenizer& tokenizer, const model::HarmonyTokens& tokens,
                 std::span<const model::TokenId> next_message, int64_t budget);

  std::unique_ptr<engine::Constraint> clone() const override {
    return std::make_unique<ThinkingBudget>(*this);
  }
  void mask_logits(std::span<float> logits) override;
  void accept_token(model::TokenId id) override;

 private:
  enum class State { header, reasoning, content };

  const model::Tokenizer* tokenizer_;
  model::HarmonyTokens tokens_;
  std::vector<model::TokenId> way_out_;  // <|end|><|start|>assistant<|channel|>
  int64_t left_;                         // tokens
  State state_   = State::header;
  bool thought_  = false;  // a message of reasoning has ended
  size_t forced_ = 0;      // tokens of way_out_ read so far
  bool leaving_  = false;  // way_out_ is being read
  bool in_name_  = false;  // of the channel, behind <|channel|>
  std::string name_;
};

}  // namespace fathom::serve
