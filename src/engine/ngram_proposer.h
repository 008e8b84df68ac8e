// Drafts without a draft model: the tokens that followed an earlier occurrence of the sequence's last tokens
// (prompt lookup decoding; Saxena 2023).
#pragma once

#include <cstdint>
#include <span>

#include "model/tokenizer.h"

namespace fathom::engine {

// Finds the longest suffix of `tokens`, of 2 to 4 tokens, that occurred before, and returns at most `count`
// tokens that followed its latest earlier occurrence. Empty where there is none. A view of `tokens`.
std::span<const model::TokenId> ngram_draft(std::span<const model::TokenId> tokens, int64_t count);

}  // namespace fathom::engine
