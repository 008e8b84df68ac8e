// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz
// idea    none yet: CTA c of G takes tiles c, c + G, ... as the rung persistent does. In the last wave some
//         CTAs have a tile and the others nothing: 145 tiles take 132 multiprocessors as long as 264 do
#include <algorithm>

#include "schedules.h"
#include "split_tile.cuh"

namespace fathom::lab::matmul {
namespace {

struct DataParallel {
  int tiles, blocks, ctas;

  __device__ int count(int cta) const { return (tiles - cta + ctas - 1) / ctas; }
  __device__ Part part(int cta, int i) const { return {.tile = cta + i * ctas, .begin = 0, .end = blocks}; }
};

}  // namespace

void data_parallel(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  const Tiles tiles(p);
  const int ctas = std::min(tiles.count, multiprocessors());
  launch_split_tiles(p, tiles, ctas, DataParallel{tiles.count, tiles.blocks, ctas}, 0, stream);
}

}  // namespace fathom::lab::matmul
