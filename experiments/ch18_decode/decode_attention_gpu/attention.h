// The problem: one decode step of gpt-oss's attention, a row for each of S sequences with the same context,
// over a cache in bf16.
#pragma once

#include "experiments/paged_attention.h"

namespace fathom::lab::decode_attention_gpu {

using paged_attention::kGroup, paged_attention::kHeadDim, paged_attention::kHeads, paged_attention::kKvHeads,
    paged_attention::kPage, paged_attention::kScale;

struct DecodeAttention : paged_attention::DecodeRows {
  View<const bf16, 5> tiles;  // pages x kKvHeads x (keys, values) x kPage x kHeadDim, swizzled
  // Workspace of split_kv, for each piece of a row and head: the weighted sum of values, and the maximum and
  // the sum of weights that belong to it.
  View<float, 4> piece_out;      // S x kHeads x pieces x kHeadDim
  View<float, 4> piece_max_sum;  // S x kHeads x pieces x 2

  DecodeAttention(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

  FATHOM_HD kernels::Bf16KvPages kv() const {  // Bf16KvPages is writable; variants only read
    return {const_cast<bf16*>(tiles.data()), tiles.extent(0), kKvHeads};
  }
};

FATHOM_CUDA_LAUNCHER void head_by_head(const DecodeAttention& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void grouped(const DecodeAttention& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void split_kv(const DecodeAttention& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void tensor_cores(const DecodeAttention& p, StreamRef stream);

}  // namespace fathom::lab::decode_attention_gpu
