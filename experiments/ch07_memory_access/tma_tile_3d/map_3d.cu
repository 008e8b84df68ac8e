// out(b, i, j) = in(b, i, j) inside of sequence b, 0 around it      fp32, out in whole tiles of 32 x 128
//
// bytes   4 for each element of in read + 4 for each of out written
// flops   0
// limit   DRAM bandwidth. H200: 512 sequences of 1000 x 120 move 0.51 GB, 0.13 ms at 3.98 TB/s
// idea    the sequence is an axis of the tensor map: a box ends where its sequence does, and TMA fills in
//         zeros on both edges. The kernel knows nothing of either
#include "cuda/tensor_map.h"
#include "ring.cuh"

namespace fathom::lab::tma_tile_3d {
namespace {

struct Tensor {
  static constexpr bool kClears = false;
  CUtensorMap map;

  __device__ void prepare(char*) const {}
  __device__ int bytes(int) const { return kTileBytes; }  // zeros count too
  __device__ void load(char* to, int sequence, int first, int, uint64_t* barrier) const {
    if (threadIdx.x == 0) ptx::cp_async_bulk_tensor_load(to, &map, sequence, first, 0, barrier);
  }
};

}  // namespace

void map_3d(const Sequences& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  const int64_t tokens = p.in.extent(1), row_bytes = 4 * p.in.extent(2);
  launch(Tensor{tensor_map(p.in.data(), DType::fp32,
                           {{p.in.extent(0), tokens * row_bytes, 1},
                            {tokens, row_bytes, kRows},
                            {p.in.extent(2), 4, kColumns}})},
         p, stream);
}

}  // namespace fathom::lab::tma_tile_3d
