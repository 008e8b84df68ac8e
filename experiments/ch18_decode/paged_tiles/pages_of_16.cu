// out(s, h) = softmax(q(s, h) k' / 8, sink(h)) v        64 heads over 8 key-value heads of 64, bf16
//
// bytes   2048 a position, each key and value read once
// flops   16384 a position, on the tensor cores
// limit   DRAM bandwidth. H200: 64 x 1024 positions are 134 MB, 29 us at 4.55 TB/s
// idea    pages of 16 positions, vLLM's default: a tile is two pages, four copies of 2 KB, after two look-ups
#include "tiles.cuh"

namespace fathom::lab::paged_tiles {

void pages_of_16(const Step& p, StreamRef stream) { launch_pages<16>(p, 1, p.pages_of_16, stream); }

}  // namespace fathom::lab::paged_tiles
