// out(b, i, j) = in(b, i, j) inside of sequence b, 0 around it      fp32, out in whole tiles of 32 x 128
//
// bytes   4 for each element of in read + 4 for each of out written
// flops   0
// limit   DRAM bandwidth. H200: 512 sequences of 1000 x 120 move 0.51 GB, 0.13 ms at 3.98 TB/s
// idea    baseline: one-dimensional bulk copies, a row each, by as many lanes. The row's address and the
//         edges are the kernel's business: it zeroes what no copy writes
#include "ring.cuh"

namespace fathom::lab::tma_tile_3d {
namespace {

struct Rows {
  static constexpr bool kClears = true;
  const float* in;
  int tokens, numbers;

  // No load ever writes the columns behind a row's last number: zeroed once, they stay so.
  __device__ void prepare(char* ring) const {
    for (int r = threadIdx.x; r < kStages * kRows; r += kThreads)
      for (int j = numbers; j < kColumns; j += 4)
        *reinterpret_cast<float4*>(ring + r * kRowBytes + j * 4) = {};
  }
  __device__ int bytes(int inside) const { return inside * numbers * 4; }
  __device__ void load(char* to, int sequence, int first, int inside, uint64_t* barrier) const {
    const int row = threadIdx.x;
    if (row >= inside) return;
    const float* from = in + (int64_t{sequence} * tokens + first + row) * numbers;
    ptx::cp_async_bulk_load(to + row * kRowBytes, from, numbers * 4, barrier);
  }
};

}  // namespace

void bulk_rows(const Sequences& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  launch(Rows{p.in.data(), static_cast<int>(p.in.extent(1)), static_cast<int>(p.in.extent(2))}, p, stream);
}

}  // namespace fathom::lab::tma_tile_3d
