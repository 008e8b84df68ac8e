#include "serve/thinking_budget.h"

#include <algorithm>
#include <limits>

#include "core/expect.h"

namespace fathom::serve {
namespace {

using model::TokenId;

constexpr std::string_view kAnalysis = "analysis";
constexpr float kForbiddenLogit      = -std::numeric_limits<float>::infinity();

}  // namespace

ThinkingBudget::ThinkingBudget(const model::Tokenizer& tokenizer, const model::HarmonyTokens& tokens,
                               std::span<const TokenId> next_message, int64_t budget)
    : tokenizer_(&tokenizer), tokens_(tokens), way_out_({tokens.end}), left_(budget) {
  FATHOM_EXPECT(budget >= 0, "a budget of less than no token");
  way_out_.insert(way_out_.end(), next_message.begin(), next_message.end());
  way_out_.push_back(tokens.channel);
}

void ThinkingBudget::mask_logits(std::span<float> logits) {
  if (leaving_) {
    const auto only   = static_cast<size_t>(way_out_[forced_]);
    const float logit = logits[only];
    std::fill(logits.begin(), logits.end(), kForbiddenLogit);
    logits[only] = logit;
    return;
  }
  if (left_ > 0 || !in_name_ || !name_.empty()) return;
  // The channel's name begins: no token may begin "analysis", in whatever pieces.
  for (size_t id = 0; id < logits.size(); ++id) {
    const std::string_view bytes = tokenizer_->bytes(static_cast<TokenId>(id));
    if (!bytes.empty() && (bytes.starts_with(kAnalysis) || kAnalysis.starts_with(bytes)))
      logits[id] = kForbiddenLogit;
  }
}

void ThinkingBudget::accept_token(TokenId id) {
  if (leaving_) {
    FATHOM_EXPECT(id == way_out_[forced_], "a token that is not on the way out of the reasoning");
    leaving_ = ++forced_ < way_out_.size();
  }
  const bool counts =
      state_ == State::reasoning ? id != tokens_.end || thought_ : state_ == State::header && thought_;
  if (counts && left_ > 0) --left_;
  if (id == tokens_.end || id == tokens_.start) {
    thought_ |= state_ == State::reasoning;
    state_   = State::header;
    in_name_ = false;
    name_.clear();
  } else if (state_ == State::header && id == tokens_.channel) {
    in_name_ = true;
    name_.clear();
  } else if (state_ == State::header && id == tokens_.message) {
    state_ = name_.starts_with(kAnalysis) ? State::reasoning : State::content;
  } else if (in_name_ && state_ == State::header) {
    name_ += tokenizer_->bytes(id);
  }
  if (state_ == State::reasoning && left_ == 0 && !leaving_) {
    leaving_ = true;
    forced_  = 0;
  }
}

}  // namespace fathom::serve
