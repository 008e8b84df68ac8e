// out(s, h) = softmax(q(s, h) k' / 8, sink(h)) v        64 heads over 8 key-value heads of 64, bf16
//
// bytes   2048 a position, each key and value read once
// flops   16384 a position, on the tensor cores
// limit   DRAM bandwidth. H200: 64 x 1024 positions are 134 MB, 29 us at 4.55 TB/s
// idea    baseline: no pages. A sequence's keys of a head are one piece of memory, and a tile is two copies
// of 4 KB
#include "tiles.cuh"

namespace fathom::lab::paged_tiles {

void dense(const Step& p, StreamRef stream) { launch(p, Dense{p.cache.data(), p.padded}, stream); }

}  // namespace fathom::lab::paged_tiles
