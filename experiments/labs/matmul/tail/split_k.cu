// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least, and 8 for each sum of a half that another CTA adds
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz
// idea    split-K: twice as many parts, each with half of k. The last wave is shorter, but every tile is
//         written and read once more in fp32
#include <algorithm>

#include "schedules.h"
#include "split_tile.cuh"

namespace fathom::lab::matmul {
namespace {

// The later parts of k of all tiles first: what an owner waits for was started before it.
struct SplitK {
  int tiles, blocks, splits, ctas;

  __device__ int count(int cta) const { return (tiles * splits - cta + ctas - 1) / ctas; }
  __device__ Part part(int cta, int i) const {
    const int item = cta + i * ctas, tile = item % tiles, split = splits - 1 - item / tiles;
    return {.tile       = tile,
            .begin      = split * blocks / splits,
            .end        = (split + 1) * blocks / splits,
            .slot       = (split - 1) * tiles + tile,
            .others     = splits - 1,
            .first_slot = tile,
            .slot_step  = tiles};
  }
};

}  // namespace

void split_k(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  const Tiles tiles(p);
  const int splits = std::min(2, tiles.blocks);  // a part has at least one block
  const int ctas   = std::min(tiles.count * splits, multiprocessors());
  launch_split_tiles(p, tiles, ctas, SplitK{tiles.count, tiles.blocks, splits, ctas},
                     tiles.count * (splits - 1), stream);
}

}  // namespace fathom::lab::matmul
