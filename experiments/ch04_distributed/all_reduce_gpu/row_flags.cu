// A flag for each row, behind a fence: x += the sum over ranks of the rows. NCCL calls it the Simple
// protocol.
//
// bytes   a row, two ranks: 11.5 KB sent and as many received, and a flag of 4; in this GPU's memory 11.5 KB
//         of `in`, 23 KB of x, and 11.5 KB of either rank written and read
// flops   (ranks + 1) 2880 a row
// limit   many rows: the link. Few: one wait after another. The fence waits until the row is there, the flag
//         follows it, and the other GPU loads the row when it has seen the flag
// idea    A CTA sends a row, fences, and sets a flag; then it waits for the others' row before that one, and
//         adds it, so that memory works while the link does. There are no more CTAs than fit at once, or one
//         could wait for a row that nobody has room to send
#include <algorithm>

#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "cuda/system_scope.cuh"
#include "cuda/watchdog.cuh"
#include "kernels/collectives/lamport_sum.cuh"
#include "receive_buffers.h"
#include "step_graph.h"

namespace fathom::lab::all_reduce_gpu {
namespace {

using kernels::kMaxRanks;
using kernels::operator+;  // of float4

constexpr int kThreads = 128, kCtasPerSm = 4;

// A rank's receive buffer has two halves, which successive sums use in turn: a rank that is in the next sum
// has read what it got in this one when it sends again into the same half. Byte offsets of what comes from
// rank `source`: a flag for each row, then the rows.
struct Layout {
  int64_t ranks, max_rows;

  int64_t flags(int half, int64_t source) const { return (half * ranks + source) * flag_bytes(); }
  int64_t rows(int half, int64_t source) const {
    return flags(2, 0) + (half * ranks + source) * (max_rows * kWidth * 4);
  }
  int64_t bytes() const { return rows(2, 0); }

 private:
  int64_t flag_bytes() const { return (max_rows * 4 + 255) / 256 * 256; }
};

struct RowFlags {
  kernels::RankParts own;  // as the engine's op has them
  float4* x;
  const int32_t* pass;
  uint32_t index, count;
  int rank, ranks;
  int64_t rows;
  std::byte* receive[kMaxRanks];
  // In each rank's buffer: offset of what comes from rank 0, and from one rank to the next.
  int64_t data, data_step, flags, flags_step;

  // Of no sum before this one.
  __device__ uint32_t flag() const { return static_cast<uint32_t>(*pass) * count + index + 1; }
};

__device__ inline void wait_for_flag(const std::byte* at, uint32_t flag) {
  Watchdog watchdog(kernels::kCollectiveTimeout);
  while (ptx::ld_acquire_sys(reinterpret_cast<const uint32_t*>(at)) != flag) watchdog.check();
}

// Sends this GPU's row, and says so.
__device__ inline void send_row(const RowFlags& o, int64_t row, uint32_t flag) {
  for (int v = threadIdx.x; v < o.own.vectors; v += kThreads) {
    const float4 own = o.own.sum(row, v);
    const int64_t at = o.data + o.rank * o.data_step + (row * o.own.vectors + v) * 16;
    for (int r = 0; r < o.ranks; ++r)
      *reinterpret_cast<float4*>(o.receive[(o.rank + r) % o.ranks] + at) = own;
  }
  __syncthreads();  // the row is sent
  const int peer = threadIdx.x;
  if (peer >= o.ranks || peer == o.rank) return;
  ptx::fence_acq_rel_sys();
  ptx::st_release_sys(
      reinterpret_cast<uint32_t*>(o.receive[peer] + o.flags + o.rank * o.flags_step + row * 4), flag);
}

// Waits for a row of all ranks, and adds it.
__device__ inline void add_row(const RowFlags& o, int64_t row, uint32_t flag) {
  const int peer = threadIdx.x;
  if (peer < o.ranks && peer != o.rank)
    wait_for_flag(o.receive[o.rank] + o.flags + peer * o.flags_step + row * 4, flag);
  __syncthreads();  // all ranks' rows are here
  for (int v = threadIdx.x; v < o.own.vectors; v += kThreads) {
    const int64_t i = row * o.own.vectors + v;
    float4 sum      = {};
    for (int r = 0; r < o.ranks; ++r) {
      const float4 part =
          __ldcg(reinterpret_cast<const float4*>(o.receive[o.rank] + o.data + r * o.data_step + i * 16));
      sum = r == 0 ? part : sum + part;
    }
    o.x[i] = __ldcg(o.x + i) + sum;
  }
}

__global__ void __launch_bounds__(kThreads, kCtasPerSm) row_flags_kernel(const __grid_constant__ RowFlags o) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const uint32_t flag = o.flag();
  const int64_t step  = gridDim.x;
  for (int64_t row = blockIdx.x; row < o.rows + step; row += step) {
    if (row < o.rows) send_row(o, row, flag);
    if (row >= step) add_row(o, row - step, flag);
  }
}

}  // namespace

Call row_flags(const Sums& p, Context& context) {
  const Rank& me = *context.rank;
  const Layout layout{.ranks = me.size(), .max_rows = p.in.extent(0) + 1};
  const auto buffers = receive_buffers(me, layout.bytes());
  return captured(p, context,
                  [buffers, layout, rank = me.rank()](View<const float, 2> part, View<float, 2> x, int index,
                                                      StreamRef stream) {
                    if (index == 0) count(buffers->pass.view(), stream);
                    if (part.size() == 0) return;
                    const int half = index % 2;
                    RowFlags o{.own        = {.parts   = reinterpret_cast<const float4*>(part.data()),
                                              .ids     = nullptr,
                                              .addends = 1,
                                              .vectors = static_cast<int>(kWidth / 4)},
                               .x          = reinterpret_cast<float4*>(x.data()),
                               .pass       = buffers->pass.data(),
                               .index      = static_cast<uint32_t>(index),
                               .count      = kSums + 2,
                               .rank       = rank,
                               .ranks      = static_cast<int>(layout.ranks),
                               .rows       = x.extent(0),
                               .receive    = {},
                               .data       = layout.rows(half, 0),
                               .data_step  = layout.rows(half, 1) - layout.rows(half, 0),
                               .flags      = layout.flags(half, 0),
                               .flags_step = layout.flags(half, 1) - layout.flags(half, 0)};
                    for (size_t r = 0; r < buffers->of_ranks.size(); ++r) o.receive[r] = buffers->of_ranks[r];
                    const int64_t fit = int64_t{kCtasPerSm} * multiprocessors();
                    launch_with_pdl(row_flags_kernel, static_cast<unsigned>(std::min(o.rows, fit)), kThreads,
                                    0, stream, o);
                  });
}

}  // namespace fathom::lab::all_reduce_gpu
