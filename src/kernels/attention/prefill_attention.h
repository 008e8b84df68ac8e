// Prefill attention: the definition of kernels/attention/attention.h over the cache of
// kernels/attention/paged_kv_cache.h, for tiles of consecutive rows of a sequence.
//
// bytes   q and out 4 Hq Dh a row; keys and values 256 Hkv (136 Hkv in FP8, 104 in K8V4, 72 in NVFP4) for
//         each position in reach of a tile, mostly from L2
// flops   4 Hq Dh for each pair of a row and a position in its reach
// limit   the tensor cores, and as much the exponentials
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/attention/kv_layer.h"
#include "kernels/attention/paged_kv_cache.h"

namespace fathom::kernels {

inline constexpr int kPrefillTileRows = 64;

// Rows row .. row + rows of a batch, all of one sequence, at consecutive positions. A tile with rows = 0 is
// padding. Tiles that end where a page ends are the cheapest, because they reach into the fewest pages.
struct PrefillTile {
  int32_t row, rows, sequence;  // rows <= kPrefillTileRows
};

// q, out [T, Hq, 64], contiguous; sinks [Hq], finite; Hq a multiple of 4 Hkv; a score is scale q . k, scale >
// 0; window in positions including the query's own, or 0 for none. `tiles` is on the device. Its last tiles
// begin first, so the longest should come last. Of `rows` the kernel reads the positions of the tiles' first
// rows and the pages in the tiles' reach. Keys and values of the rows themselves are in `kv` already. Later
// positions may hold anything, NaN too; positions of a page that a window has passed must hold finite
// numbers. Rows of `out` that are in no tile are not written. A row's bits depend neither on the tiles nor on
// the other rows.
void prefill_attention(View<const bf16, 3> q, const KvLayer& kv, View<const float, 1> sinks, float scale,
                       int64_t window, View<const PrefillTile, 1> tiles, const PagedRows& rows,
                       View<bf16, 3> out, StreamRef stream);

}  // namespace fathom::kernels
