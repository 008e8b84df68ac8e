// out(s, h) = softmax(q(s, h) k' / 8, sink(h)) v        64 heads over 8 key-value heads of 64, bf16
//
// bytes   2048 a position, each key and value read once
// flops   16384 a position, on the tensor cores
// limit   DRAM bandwidth. H200: 64 x 1024 positions are 134 MB, 29 us at 4.55 TB/s
// idea    the engine's op over pages of 64
#include "kernels/attention/decode_attention.h"
#include "layouts.h"

namespace fathom::lab::paged_tiles {

void engine_op(const Step& p, StreamRef stream) {
  kernels::decode_attention(p.q, p.in_pages_of_64(), p.sinks, kScale, 0,
                            {.positions = p.positions, .sequence = p.sequence, .pages = p.pages_of_64},
                            p.context, p.out, stream);
}

}  // namespace fathom::lab::paged_tiles
