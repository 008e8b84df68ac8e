// y = x / sqrt(mean x^2 + epsilon) of each row        fp32
//
// bytes   8 a number: x read, y written
// flops   3 a number
// limit   DRAM bandwidth. H200: 1320 rows of 50304 are 531 MB, 0.133 ms at the 3.98 TB/s of a copy
// idea    blocks that stay: as soon as a piece has been scaled and stored, its place is refilled with
//         that piece of the block's next row. Loads of one row overlap the stores of the row before,
//         without a second buffer
#include <algorithm>

#include "cuda/multiprocessors.h"
#include "row_pieces.cuh"

namespace fathom::lab::completion_tokens {
namespace {

__global__ void __launch_bounds__(kThreads) rows_kernel(const float* in, float* out, int rows, int width) {
  extern __shared__ __align__(128) float row[];
  __shared__ uint64_t arrived[kPieces];
  __shared__ float of_warp[kThreads / 32];
  const Pieces pieces(width);
  const auto load = [&](int piece, int of_row) {  // by thread 0
    ptx::mbarrier_arrive_expect_tx(&arrived[piece], pieces.bytes(piece));
    load_piece(pieces, piece, row, in + int64_t{of_row} * width, &arrived[piece]);
  };
  const int step = static_cast<int>(gridDim.x);
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : arrived) ptx::mbarrier_init(&barrier, 1);
    ptx::fence_proxy_async();  // TMA sees the barriers
    for (int piece = 0; piece < kPieces; ++piece) load(piece, static_cast<int>(blockIdx.x));
  }
  __syncthreads();  // all threads see the barriers

  int phase = 0;  // of all barriers: each completes once for each row of the block
  for (int i = static_cast<int>(blockIdx.x); i < rows; i += step, phase ^= 1) {
    float squares = 0;
    for (int piece = 0; piece < kPieces; ++piece) {
      ptx::mbarrier_wait(&arrived[piece], phase);
      squares += rms_norm::sum_squares<kThreads>(row + pieces.first(piece), pieces.count(piece));
    }
    const float scale = rms_norm::scale_of(rms_norm::block_sum<kThreads>(squares, of_warp), width);
    for (int piece = 0; piece < kPieces; ++piece) {
      const int first = pieces.first(piece);
      rms_norm::store_scaled<kThreads>(row + first, scale, out + int64_t{i} * width + first,
                                       pieces.count(piece));
      __syncthreads();  // all threads have read the piece (and, before the first, of_warp)
      if (threadIdx.x == 0 && i + step < rows) load(piece, i + step);
    }
  }
}

}  // namespace

void refill_per_piece(const RmsNorm& p, StreamRef stream) {
  FATHOM_EXPECT(p.width() <= kMaxWidth && p.rows() <= INT32_MAX / 2, "a row is at most 51200 numbers");
  if (p.rows() == 0) return;
  allow_shared_memory_once<rows_kernel>(kMaxWidth * static_cast<int>(sizeof(float)));
  const auto grid = static_cast<unsigned>(std::min<int64_t>(p.rows(), multiprocessors()));
  rows_kernel<<<grid, kThreads, static_cast<size_t>(p.width()) * 4, stream>>>(
      p.in.data(), p.out.data(), static_cast<int>(p.rows()), static_cast<int>(p.width()));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::completion_tokens
