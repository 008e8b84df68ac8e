#include "kernels/attention/decode_attention.h"
#include "kernels/attention/prefill_attention.h"
#include "pod.h"

namespace fathom::lab::pod_attention {

void engine_ops(const Pod& p, StreamRef stream) {
  static_assert(sizeof(kernels::PrefillTile) == 3 * sizeof(int32_t));
  const View<const kernels::PrefillTile, 1> tiles(
      reinterpret_cast<const kernels::PrefillTile*>(p.prompt_tiles.data()), {p.prompt_tiles.extent(0)});
  kernels::prefill_attention(p.prompt_q, p.kv(), p.sinks, kScale, 0, tiles,
                             {.positions = p.prompt_positions, .sequence = {}, .pages = p.prompt_pages},
                             p.prompt_out, stream);
  kernels::decode_attention(p.q, p.kv(), p.sinks, kScale, 0, p.rows(), p.context, p.out, stream);
}

}  // namespace fathom::lab::pod_attention
