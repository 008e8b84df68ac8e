// out(t, h) = softmax(q(t, h) k' / 8, sink(h)) v        causal, 64 heads over 8 key-value heads of 64, bf16
//
// bytes   16384 a token for q and out; each page of 16 KiB, from L2, once for every tile of 64 rows of 2 or 4
//         heads that reaches it
// flops   16384 for each pair of a token and a position in its reach, rounded up to whole pages
// limit   the tensor cores, and as much the exponentials: 64 x 64 scores are 256 clocks of either
// idea    the engine's op, kernels/attention/prefill_attention.cu. It is unified_max with what serving adds:
//         the first warps of the warpgroups take turns loading pages, a row that overflows is redone by its
//         warp alone, CTAs have 2 heads where there are few steps or few CTAs, programmatic dependent launch,
//         whole-vector stores, and pages in FP8
#include "kernels/attention/prefill_attention.h"
#include "warpgroups.h"

namespace fathom::lab::flash_attention_gpu {

void warpgroups(const PromptAttention& p, StreamRef stream) {
  static_assert(sizeof(kernels::PrefillTile) == 3 * sizeof(int32_t));
  const View<const kernels::PrefillTile, 1> tiles(
      reinterpret_cast<const kernels::PrefillTile*>(p.row_tiles.data()), {p.row_tiles.extent(0)});
  kernels::prefill_attention(p.q, p.kv(), p.sinks, kScale, p.window, tiles,
                             {.positions = p.positions, .sequence = {}, .pages = p.pages}, p.out, stream);
}

}  // namespace fathom::lab::flash_attention_gpu
