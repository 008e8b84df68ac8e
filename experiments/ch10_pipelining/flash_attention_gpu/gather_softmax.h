// Kernels of scores_in_memory beside its two products; cuDNN needs the first of them too.
#pragma once

#include "attention.h"

namespace fathom::lab::flash_attention_gpu {

// Copies keys and values from their pages to contiguous rows, which libraries read: (keys, values) x kKvHeads
// x T x kHeadDim.
void gather(const PromptAttention& p, View<bf16, 4> rows, StreamRef stream);

// weights = softmax(scores / 8) over the positions in reach and the sink; 0 elsewhere, up to a multiple of 8.
void softmax(const PromptAttention& p, int64_t kv_head, StreamRef stream);

}  // namespace fathom::lab::flash_attention_gpu
