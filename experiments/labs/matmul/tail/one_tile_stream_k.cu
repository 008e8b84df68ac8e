// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least, and 8 for each sum of a part of a tile that is cut: at most 17 MB
//         for each direction on 132 multiprocessors, whatever the size
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz
// idea    whole waves stay whole and come first: all CTAs of a row or a column of tiles are at the same block
//         of k at the same time, whose lines L2 then reads once ("one-tile stream-K"). Only the tiles of the
//         broken wave are cut, as evenly as can be, and the CTAs of a tile add up its parts together
#include "schedules.h"
#include "split_tile.cuh"

namespace fathom::lab::matmul {

void one_tile_stream_k(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  const Tiles tiles(p);
  const StreamK schedule = one_tile_schedule(tiles.count, tiles.blocks, multiprocessors());
  launch_split_tiles<Fixup::together>(p, tiles, schedule.ctas, schedule, schedule.slots(), stream);
}

}  // namespace fathom::lab::matmul
