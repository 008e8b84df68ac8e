// The problem: documents packed one after another into a sequence of T tokens. A token sees its own document
// up to itself, with or without a learned bias for how far away it looks (T5's relative position bias).
// 16 query heads in groups of 4, heads of 64 or 128 dimensions, bf16.
#pragma once

#include <functional>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::flexattention {

inline constexpr int kHeads = 16, kKvHeads = 4, kGroup = kHeads / kKvHeads;
inline constexpr int64_t kMostTokens = 16384;
inline constexpr int64_t kChunkRows  = 1024;  // whose scores dense_scores holds at a time

struct PackedDocuments {
  int64_t documents, longest;        // how many, and the tokens of the longest
  double pairs;                      // of a token and one that it sees
  int64_t reach;                     // of the bias; -1: none
  View<const bf16, 3> q, k, v;       // T x heads x head size
  View<const int32_t, 1> begin;      // T: the token at which each token's document begins
  View<const int32_t, 1> bounds;     // documents + 1: where each begins, and T
  View<const float, 2> bias;         // kHeads x (2 reach + 1), of kernels::RelativeBias
  View<const int32_t, 2> tiles;      // kernels::AttentionTile each, of one sequence;
  View<const int32_t, 2> its_tiles;  // of a ragged batch, each document a sequence
  View<bf16, 3> out;                 // like q
  View<float, 2> lse;                // kHeads x T: log of the sum of exponentials
  // Workspace of variants that list blocks in each call: kernels::BlockMask.
  View<uint32_t, 2> blocks;
  View<int32_t, 1> counts;
  // Workspace of dense_scores: kGroup x kChunkRows x T, rows of a multiple of 8 numbers.
  View<float, 3> scores;
  View<bf16, 3> weights;
  // Workspace of padded, without a bias: documents x longest rows.
  View<bf16, 3> padded_q, padded_k, padded_v, padded_out;
  View<float, 2> padded_lse;
  View<const int32_t, 2> padded_tiles;

  // The point has tokens, documents and head_size, and reach where there is a bias.
  PackedDocuments(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

  FATHOM_HD int64_t tokens() const { return q.extent(0); }
  FATHOM_HD int head_size() const { return static_cast<int>(q.extent(2)); }
  FATHOM_HD float scale() const { return head_size() == 64 ? 0.125f : 0.08838835f; }  // 1 / sqrt(head size)
};

using Call = std::function<void(const PackedDocuments&, StreamRef)>;

FATHOM_CUDA_LAUNCHER Call dense_scores(const PackedDocuments&, StreamRef);
FATHOM_CUDA_LAUNCHER Call every_block(const PackedDocuments&, StreamRef);
FATHOM_CUDA_LAUNCHER Call block_sparse(const PackedDocuments&, StreamRef);
FATHOM_CUDA_LAUNCHER Call padded(const PackedDocuments&, StreamRef);
FATHOM_CUDA_LAUNCHER Call ragged(const PackedDocuments&, StreamRef);

}  // namespace fathom::lab::flexattention
