// What the formula needs beside its two products, for one key-value head after the other.
#pragma once

#include "attention.h"

namespace fathom::lab::flash_attention_gpu {

// Keys and values out of their pages, in rows: a library's product takes no page table.
void gather(const PromptAttention& p, StreamRef stream);

// weights = softmax(scores / 8) of the positions in reach, the sink included; 0 elsewhere, in whole eights.
void soften(const PromptAttention& p, int64_t kv_head, StreamRef stream);

}  // namespace fathom::lab::flash_attention_gpu
