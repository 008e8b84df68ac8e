// Drafts without a model: what followed the last time the sequence said the same (prompt lookup; Saxena
// 2023).
#pragma once

#include <cstdint>
#include <span>

#include "model/tokenizer.h"

namespace fathom::engine {

// At most `count` tokens that followed the latest earlier occurrence of the longest ending of `tokens`, of at
// most 4 tokens and at least 2, that occurred before. Empty where none did. A view of `tokens`.
std::span<const model::TokenId> ngram_draft(std::span<const model::TokenId> tokens, int64_t count);

}  // namespace fathom::engine
