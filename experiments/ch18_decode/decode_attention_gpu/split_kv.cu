// out(s, h) = softmax(q(s, h) k' / 8, sink(h)) v        64 heads over 8 key-value heads of 64, bf16
//
// bytes   2048 a position, and 16.5 KiB for each piece of a row, written and read again, which stay in L2
// flops   16384 a position, on the CUDA cores
// limit   DRAM bandwidth where there are many rows; where there is one, latency. 64 x 4096 positions are
//         537 MB, 119 us of an H200 at 4.5 TB/s
// idea    split-KV: a row and key-value head is split along the context, a CTA for each piece, so that even
//         one row keeps all SMs busy. Pieces have different maxima: a second kernel rescales their sums to
//         the largest, adds them, and adds the sink once
// source  Dao et al., Flash-Decoding for long-context inference, 2023
#include "cuda/check.h"
#include "online_softmax.cuh"

namespace fathom::lab::decode_attention_gpu {
namespace {

// Grid: (pieces, kKvHeads, S).
__global__ void __launch_bounds__(kThreads, 3) piece_kernel(const __grid_constant__ DecodeAttention p) {
  __shared__ Running<kGroup>::Shared shared;
  const int piece = static_cast<int>(blockIdx.x), pieces = static_cast<int>(gridDim.x);
  const int kv_head = static_cast<int>(blockIdx.y), head = kv_head * kGroup;
  const int s          = static_cast<int>(blockIdx.z);
  const Reach row      = reach_of(p, s);
  const int first_page = row.first / kPage;
  const int of_piece   = (row.last / kPage + 1 - first_page + pieces - 1) / pieces;  // pages
  const int first      = (first_page + piece * of_piece) * kPage;
  const Reach of_cta   = {max(row.first, first), min(row.last, first + of_piece * kPage - 1)};

  Running<kGroup> running(p, s, head);
  running.walk(shared.stages, p, s, kv_head, of_cta);
  const Merged merged = running.merge(shared);
  const int h = static_cast<int>(threadIdx.x) / (kHeadDim / 4), d = threadIdx.x % (kHeadDim / 4) * 4;
  *reinterpret_cast<float4*>(&p.piece_out(s, head + h, piece, d)) = merged.out;
  if (d == 0) *reinterpret_cast<float2*>(&p.piece_max_sum(s, head + h, piece, 0)) = {merged.max, merged.sum};
}
static_assert(kThreads == kGroup * kHeadDim / 4, "merge() gives a result to every thread");

// A half-warp for each row and head, 4 dimensions a lane.
__global__ void __launch_bounds__(kThreads) merge_kernel(const __grid_constant__ DecodeAttention p) {
  constexpr int kLanes = kHeadDim / 4;
  const int row        = static_cast<int>(blockIdx.x * (kThreads / kLanes) + threadIdx.x / kLanes);
  const int s = row / kHeads, head = row % kHeads, d = static_cast<int>(threadIdx.x) % kLanes * 4;
  const int pieces    = static_cast<int>(p.piece_out.extent(2));
  const auto* max_sum = reinterpret_cast<const float2*>(&p.piece_max_sum(s, head, 0, 0));
  const float* out    = &p.piece_out(s, head, 0, d);

  const float sink = p.sinks(head) * kLog2E;
  Merged merged    = {.max = sink};
#pragma unroll 8
  for (int i = 0; i < pieces; ++i) merged.max = fmaxf(merged.max, max_sum[i].x);
#pragma unroll 8
  for (int i = 0; i < pieces; ++i)
    merged.add(max_sum[i].x, max_sum[i].y, *reinterpret_cast<const float4*>(out + i * kHeadDim));
  store_result(&p.out(s, head, d), merged, sink);
}
static_assert(kHeads % (kThreads * 4 / kHeadDim) == 0, "rows and heads fill whole CTAs");

}  // namespace

void split_kv(const DecodeAttention& p, StreamRef stream) {
  if (p.q.size() == 0) return;
  const int64_t rows = p.q.extent(0);
  FATHOM_EXPECT(rows <= 65535 && p.context < (int64_t{1} << 30),
                "sequences are counted by the grid's z, positions in 31 bits");
  const dim3 grid(static_cast<unsigned>(p.piece_out.extent(2)), kKvHeads, static_cast<unsigned>(rows));
  piece_kernel<<<grid, kThreads, 0, stream>>>(p);
  FATHOM_LAUNCHED();
  merge_kernel<<<blocks_for(rows * kHeads * (kHeadDim / 4), kThreads), kThreads, 0, stream>>>(p);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::decode_attention_gpu
