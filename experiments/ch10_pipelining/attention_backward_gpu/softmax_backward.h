// The kernels between and after the products of scores_in_memory.
#pragma once

#include "gradients.h"

namespace fathom::lab::attention_backward_gpu {

// Of one query head: p = exp(scale s - lse) and ds = p (dp - d_out . out) from scores s and d_weights dp, in
// bf16; 0 where the mask hides the key, and up to a row's end.
void softmax_backward(const Gradients& p, int64_t head, StreamRef stream);

// dk and dv of a key-value head, from the sums over its group.
void round_group_sums(const Gradients& p, int64_t kv_head, StreamRef stream);

}  // namespace fathom::lab::attention_backward_gpu
