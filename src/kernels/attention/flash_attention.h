// out(i, h) = sum over j of w(i, j) v(j, h / G), w = softmax of score(scale q(i, h) . k(j, h / G)) over the
// keys j that mask(i, j) shows, with an optional sink: one more score of each head, without a value.
//
// Attention over contiguous rows of a ragged batch, as a family: the mask and the score are functors that are
// compiled into the kernel (PyTorch's FlexAttention; its names are mask_mod and score_mod). Masks are below,
// scores in attention_scores.h. A list of key blocks of each tile of query rows says which blocks the kernel
// loads; blocks whose pairs are all visible are not masked.
//
// bytes   4 Hq D a row for q and out, 4 Hkv D for each key of a block of a tile, mostly from L2
// flops   4 Hq D for each pair of a row and a visible key
// limit   the tensor cores: 64 x 64 scores of a head of 128 dimensions are 512 clocks (H200: 989 TFLOP/s on
//         paper, 790 to 910 under load), of one of 64 dimensions 256, and their exponentials 256 as well
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/attention/attention_scores.h"
#include "kernels/attention/attention_tile.h"

namespace fathom::kernels {

// ---- masks: may a query row see a key?
//
// Without short-circuits: a load that depends on the row alone can then be made once for all of its keys.

// A query row and a key of one sequence. Where a sequence has fewer query rows than keys, the last row is at
// the last key's position.
struct Pair {
  int q, k;      // positions in the sequence
  int first;     // the row of k that holds the sequence's position 0
  int sequence;  // of the batch
};

struct EveryKey {
  FATHOM_HD bool operator()(Pair) const { return true; }
};
struct Causal {
  FATHOM_HD bool operator()(Pair at) const { return at.k <= at.q; }
};
struct SlidingWindow {  // causal; `window` positions, the row's own among them
  int window;

  FATHOM_HD bool operator()(Pair at) const { return at.k <= at.q && at.q - at.k < window; }
};
struct PrefixLm {         // a prefix that every row sees, causal behind it
  const int32_t* prefix;  // positions, of each sequence

  FATHOM_HD bool operator()(Pair at) const { return (at.k <= at.q) | (at.k < prefix[at.sequence]); }
};
// Documents packed into a sequence: a row sees its own document up to itself. Sequences have as many query
// rows as keys.
struct CausalDocument {
  const int32_t* begin;  // of each row of k: the position at which its document begins

  FATHOM_HD bool operator()(Pair at) const { return (at.k <= at.q) & (at.k >= begin[at.first + at.q]); }
};
struct BlockSparse {    // blocks of 64 x 64 positions, the same in every sequence
  const uint8_t* kept;  // [blocks of rows, blocks of keys]: 0 or 1
  int blocks;           // of keys

  FATHOM_HD bool operator()(Pair at) const { return at.q >= 0 && kept[at.q / 64 * blocks + at.k / 64] != 0; }
};

// ---- the lists of key blocks

// Which key blocks each tile needs, in device memory. Serves every call with the same tiles and mask, and all
// heads.
struct BlockMask {
  View<const AttentionTile, 1> tiles;  // of kernels/attention/attention_tiles.h
  // [tiles, most blocks of a sequence]: bits 0 to 23 the block's number in its sequence; 24 + 2 w and the
  // next one what warpgroup w's rows see of it (BlockKind).
  View<uint32_t, 2> blocks;
  View<int32_t, 1> counts;  // of each tile's blocks
};
enum class BlockKind { empty = 0, partial = 1, full = 2 };
enum class KeptBlocks {
  visible,  // blocks that no row of a tile sees are not listed
  all,      // for comparison: every block of the sequence is listed, and masked
};

// Writes blocks and counts. Masks: those with a flash_attention().
template <class Mask>
void build_block_mask(const BlockMask& to, int head_size, const Mask& mask, KeptBlocks kept,
                      StreamRef stream);

// ---- the op

struct RaggedAttention {
  View<const bf16, 3> q;       // [T, Hq, D], contiguous
  View<const bf16, 3> k, v;    // [keys, Hkv, D], contiguous; finite numbers
  View<const float, 1> sinks;  // [Hq], or empty: none
  float scale;                 // > 0
  View<bf16, 3> out;           // like q
  View<float, 2> lse;          // [Hq, T]: log of the sum of exponentials, the sink's among them
};

// D = 64 or 128; Hq a multiple of Hkv. Rows in no tile are not written. A row that sees nothing gets zeros,
// and -infinity for its lse without a sink. The block mask is of the same mask. Compiled for
//   PlainScore     Causal, SlidingWindow, PrefixLm, CausalDocument, BlockSparse
//   RelativeBias   CausalDocument
//   Alibi          EveryKey
//   SoftCap        SlidingWindow
template <int kHeadSize, class Mask, class Score>
void flash_attention(const RaggedAttention& a, const BlockMask& blocks, const Mask& mask, const Score& score,
                     StreamRef stream);

}  // namespace fathom::kernels
