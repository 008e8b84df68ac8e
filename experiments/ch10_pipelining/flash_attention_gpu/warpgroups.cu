// out(t, h) = softmax(q(t, h) k' / 8, sink(h)) v        causal, 64 heads over 8 key-value heads of 64, bf16
//
// bytes   16384 a token for q and out; each page of 16 KiB, from L2, once for every tile of 64 rows of 2 or 4
//         heads in whose reach it is
// flops   16384 for each pair of a token and a position in its reach, rounded up to whole pages
// limit   the tensor cores, and as much the exponentials: 64 x 64 scores are 256 clocks of either
// idea    the engine's op, kernels/paged_attention_many.cu: wgmma takes keys and values from shared memory.
//         While the tensor cores work on one page, a warpgroup takes the exponentials of another. The
//         warpgroups of a block share a ring of pages that the copy engine fills, far ahead. A row's scores
//         are taken relative to its sink, so that maxima need not be looked for
#include "attention.h"
#include "kernels/paged_attention_many.h"

namespace fathom::lab::flash_attention_gpu {

void warpgroups(const PromptAttention& p, StreamRef stream) {
  static_assert(sizeof(kernels::PromptTile) == 3 * sizeof(int32_t));
  const View<const kernels::PromptTile, 1> tiles(
      reinterpret_cast<const kernels::PromptTile*>(p.row_tiles.data()), {p.row_tiles.extent(0)});
  kernels::attend_many(p.q, p.kv(), p.sinks, kScale, p.window, tiles,
                       {.positions = p.positions, .sequence = {}, .pages = p.pages}, p.out, stream);
}

}  // namespace fathom::lab::flash_attention_gpu
