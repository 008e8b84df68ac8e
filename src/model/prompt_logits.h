// The logits of every token of a text, straight from the forward pass on this machine's CPUs.
#pragma once

#include <functional>
#include <span>

#include "core/thread_pool.h"
#include "model/checkpoint.h"
#include "model/tokenizer.h"

namespace fathom::model {

// `each` hears those of one token after the other, [V], valid until it returns. Tokens are in the vocabulary.
void prompt_logits(const Checkpoint& checkpoint, std::span<const TokenId> tokens, ThreadPool& threads,
                   const std::function<void(std::span<const float>)>& each);

}  // namespace fathom::model
