// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least, and 8 for each sum of a tile's second part: 9 MB for each direction
//         on 132 multiprocessors, whatever the size
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz
// idea    stream-K (Osama et al. 2023): the blocks of k of all tiles are one line, cut into a piece of the
//         same length for each CTA, so that all end at the same time. A tile that lies across a cut has two
//         owners, of which one adds the other's sums. Whole waves stay as they are: only the last one and
//         the broken one behind it are cut ("two-tile stream-K"), so that a piece is at least as long as a
//         tile and a tile has at most two parts
#include <algorithm>

#include "schedules.h"
#include "split_tile.cuh"

namespace fathom::lab::matmul {
namespace {

// A piece begins with the end of a tile, whose owner has the piece before: what it waits for is what the
// other CTA does first. Pieces are dealt in reverse, so that an owner waits for a CTA with a lower number,
// which the GPU starts earlier. With fewer tiles than CTAs a tile may have many parts.
struct StreamK {
  int tiles, blocks;
  int cut;  // the first tiles, which are cut into pieces; a whole number of waves is left

  __device__ int piece() const { return static_cast<int>(gridDim.x - 1 - blockIdx.x); }
  __device__ int64_t first_block(int piece) const { return int64_t{piece} * cut * blocks / gridDim.x; }
  // The piece that has this block.
  __device__ int piece_of(int64_t block) const {
    return static_cast<int>(((block + 1) * gridDim.x - 1) / (int64_t{cut} * blocks));
  }

  __device__ int parts_of_piece() const {
    if (cut == 0) return 0;
    return static_cast<int>((first_block(piece() + 1) - 1) / blocks - first_block(piece()) / blocks + 1);
  }
  __device__ int count() const { return parts_of_piece() + (tiles - cut) / static_cast<int>(gridDim.x); }
  __device__ Part part(int i) const {
    const int of_piece = parts_of_piece();
    if (i >= of_piece)
      return {
          .tile = static_cast<int>(cut + (i - of_piece) * gridDim.x + blockIdx.x), .begin = 0, .end = blocks};
    const int64_t from = first_block(piece()), to = first_block(piece() + 1);
    const int tile          = static_cast<int>(from / blocks) + i;
    const int64_t tile_from = int64_t{tile} * blocks;
    return {.tile       = tile,
            .begin      = static_cast<int>(max(from - tile_from, int64_t{0})),
            .end        = static_cast<int>(min(to - tile_from, int64_t{blocks})),
            .slot       = piece(),
            .others     = piece_of(tile_from + blocks - 1) - piece(),
            .first_slot = piece() + 1,
            .slot_step  = 1};
  }
};

}  // namespace

void stream_k(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  constexpr int64_t kFewestBlocks = 4;  // of a part, where there are fewer tiles than multiprocessors
  const Tiles tiles(p);
  const int64_t wanted = std::max<int64_t>(tiles.count, int64_t{tiles.count} * tiles.blocks / kFewestBlocks);
  const int ctas       = static_cast<int>(std::min<int64_t>(wanted, multiprocessors()));
  const int waves      = tiles.count / ctas;
  const int cut        = tiles.count % ctas == 0 ? 0 : tiles.count - std::max(0, waves - 1) * ctas;
  launch_split_tiles(p, tiles, ctas, StreamK{tiles.count, tiles.blocks, cut}, ctas, stream);
}

}  // namespace fathom::lab::matmul
