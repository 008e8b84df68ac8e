// y = x / sqrt(mean x^2 + epsilon) of each row        fp32
//
// bytes   8 a number: x read, y written
// flops   3 a number
// limit   DRAM bandwidth. H200: 1320 rows of 50304 are 531 MB, 0.133 ms at the 3.98 TB/s of a copy
// idea    a barrier for each piece: the token of a piece completes when its own bytes have arrived, and
//         the block sums it while the later ones are on their way
#include "row_pieces.cuh"

namespace fathom::lab::completion_tokens {
namespace {

__global__ void __launch_bounds__(kThreads) row_kernel(const float* in, float* out, int width) {
  extern __shared__ __align__(128) float row[];
  __shared__ uint64_t arrived[kPieces];
  __shared__ float of_warp[kThreads / 32];
  const Pieces pieces(width);
  const int64_t first = int64_t{blockIdx.x} * width;
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : arrived) ptx::mbarrier_init(&barrier, 1);
    ptx::fence_proxy_async();  // TMA sees the barriers
    for (int piece = 0; piece < kPieces; ++piece) {
      ptx::mbarrier_arrive_expect_tx(&arrived[piece], pieces.bytes(piece));
      load_piece(pieces, piece, row, in + first, &arrived[piece]);
    }
  }
  __syncthreads();  // all threads see the barriers

  float squares = 0;
  for (int piece = 0; piece < kPieces; ++piece) {
    ptx::mbarrier_wait(&arrived[piece], 0);
    squares += rms_norm::sum_squares<kThreads>(row + pieces.first(piece), pieces.count(piece));
  }
  const float scale = rms_norm::scale_of(rms_norm::block_sum<kThreads>(squares, of_warp), width);
  rms_norm::store_scaled<kThreads>(row, scale, out + first, width);
}

}  // namespace

void wait_per_piece(const RmsNorm& p, StreamRef stream) {
  FATHOM_EXPECT(p.width() <= kMaxWidth && p.rows() <= INT32_MAX, "a row is at most 51200 numbers");
  if (p.rows() == 0) return;
  allow_shared_memory_once<row_kernel>(kMaxWidth * static_cast<int>(sizeof(float)));
  row_kernel<<<static_cast<unsigned>(p.rows()), kThreads, static_cast<size_t>(p.width()) * 4, stream>>>(
      p.in.data(), p.out.data(), static_cast<int>(p.width()));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::completion_tokens
