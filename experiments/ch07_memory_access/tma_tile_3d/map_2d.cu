// out(b, i, j) = in(b, i, j) inside of sequence b, 0 around it      fp32, out in whole tiles of 32 x 128
//
// bytes   4 for each element of in read + 4 for each of out written
// flops   0
// limit   DRAM bandwidth. H200: 512 sequences of 1000 x 120 move 0.51 GB, 0.13 ms at 3.98 TB/s
// idea    a tensor map of all rows of all sequences: a tile is one instruction, and the columns behind the
//         last are zeros. But a box at the end of a sequence runs on into the next: the kernel zeroes those
//         rows
#include "cuda/tensor_map.h"
#include "ring.cuh"

namespace fathom::lab::tma_tile_3d {
namespace {

struct Matrix {
  static constexpr bool kClears = true;
  CUtensorMap map;
  int tokens;

  __device__ void prepare(char*) const {}
  __device__ int bytes(int) const { return kTileBytes; }  // zeros count too
  __device__ void load(char* to, int sequence, int first, int, uint64_t* barrier) const {
    if (threadIdx.x == 0) ptx::cp_async_bulk_tensor_load(to, &map, sequence * tokens + first, 0, barrier);
  }
};

}  // namespace

void map_2d(const Sequences& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  const int64_t row_bytes = 4 * p.in.extent(2);
  launch(Matrix{tensor_map(p.in.data(), DType::fp32, p.in.extent(0) * p.in.extent(1), p.in.extent(2),
                           row_bytes, kRows, kColumns),
                static_cast<int>(p.in.extent(1))},
         p, stream);
}

}  // namespace fathom::lab::tma_tile_3d
