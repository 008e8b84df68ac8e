// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least, and 8 for each sum of a part that does not begin at k = 0: 9 MB for
//         each direction on 132 multiprocessors, whatever the size
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz
// idea    stream-K (Osama et al. 2023): the blocks of k of all tiles are one line, cut into a piece of the
//         same length for each CTA, so that all end at the same time. A tile that lies across a cut is
//         shared by two CTAs; its owner adds the other's sums. Whole waves stay as they are: only the last
//         one and the broken one behind it are cut ("two-tile stream-K"), so that a piece is at least as long
//         as a tile and a tile has at most two parts
#include "schedules.h"
#include "split_tile.cuh"

namespace fathom::lab::matmul {

void stream_k(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  const Tiles tiles(p);
  const StreamK schedule = two_tile_schedule(tiles.count, tiles.blocks, multiprocessors());
  launch_split_tiles(p, tiles, schedule.ctas, schedule, schedule.slots(), stream);
}

}  // namespace fathom::lab::matmul
