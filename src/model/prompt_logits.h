// The logits after every token of a prompt, by the forward pass on the CPUs.
#pragma once

#include <functional>
#include <span>

#include "core/thread_pool.h"
#include "model/checkpoint.h"
#include "model/tokenizer.h"

namespace fathom::model {

// Calls `each` with the logits [V] after each token, in order; they are valid until it returns. All tokens
// must be in the vocabulary.
void prompt_logits(const Checkpoint& checkpoint, std::span<const TokenId> tokens, ThreadPool& threads,
                   const std::function<void(std::span<const float>)>& each);

}  // namespace fathom::model
