// Attention for the rows of prompts: what kernels/attention.h defines, over the cache of kernels/kv_tiles.h,
// a tile of consecutive rows of a sequence at a time.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/kv_tiles.h"

namespace fathom::kernels {

inline constexpr int kPromptRows = 64;

// Rows row .. row + rows of a batch: one sequence's, at consecutive positions. A tile with rows = 0 is
// padding. Tiles that end at a page's end are the cheapest: they reach into the fewest pages.
struct PromptTile {
  int32_t row, rows, sequence;  // rows <= kPromptRows
};

// q, out [T, Hq, 64], contiguous; sinks [Hq], finite; Hq a multiple of 4 Hkv; scale > 0, times q . k, is a
// score; window in positions, the query's own among them, or 0 for none. `tiles` lies on the device; its last
// ones begin first, so the longest belong there. Of `rows` the positions of the tiles' first rows are read,
// and the pages in the tiles' reach. Keys and values of the rows themselves are in `kv` already. Positions
// behind those may hold anything, NaN too; those of a page that a window has passed hold numbers. Rows of out
// in no tile stay as they are. A row's bits depend neither on the tiles nor on the other rows.
void attend_many(View<const bf16, 3> q, const KvLayer& kv, View<const float, 1> sinks, float scale,
                 int64_t window, View<const PromptTile, 1> tiles, const PagedRows& rows, View<bf16, 3> out,
                 StreamRef stream);

}  // namespace fathom::kernels
