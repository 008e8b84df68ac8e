// The KV cache on a GPU: pages of 64 positions, and in each page for every key-value head a tile of keys and
// one of values, 64 positions x 64 dimensions in bf16, 8 KiB. Tiles lie as the tensor cores read them from
// shared memory ("128-byte swizzle"): the 16-byte piece c of a position's 128 bytes is at c ^ (position % 8).
// A plain copy of a tile is an operand of wgmma, and ldmatrix reads it without bank conflicts.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "kernels/packed_weights.h"

namespace fathom::kernels {

// Of one layer, on the device: [pages][heads][keys, values][64][64].
struct KvTiles {
  bf16* tiles   = nullptr;
  int64_t pages = 0, heads = 0;

  static constexpr int64_t kElements = kTile * kHeadDim;  // of a tile

  FATHOM_HD bf16* keys(int64_t page, int64_t head) const {
    return tiles + (page * heads + head) * 2 * kElements;
  }
  FATHOM_HD bf16* values(int64_t page, int64_t head) const { return keys(page, head) + kElements; }

  // Where a tile has dimension d of its position r.
  FATHOM_HD static constexpr int64_t at(int64_t r, int64_t d) {
    return r * kHeadDim + ((d / 8) ^ (r % 8)) * 8 + d % 8;
  }
};

// Whose rows are whose, on the device. Position p of sequence s lies at p % 64 of page pages(s, p / 64).
struct PagedRows {
  View<const int32_t, 1> positions;  // [T]; -1: the row is padding, nothing is computed for it
  View<const int32_t, 1> sequence;   // [T]
  View<const int32_t, 2> pages;      // [S, P]; pages out of reach of a window may be -1
};

}  // namespace fathom::kernels
