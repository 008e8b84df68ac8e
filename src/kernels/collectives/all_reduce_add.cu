// x += the sum over ranks of `parts`; math and bytes: all_reduce_add.h.
//
// flops   (J + ranks) H a row
// limit   few rows: the latency of the link; many: its bandwidth. 8,192 rows of 2,880 send 94 MB
// idea    A number is its own flag (lamport.cuh): one trip over the link, no fence. A thread sends its next
//         four numbers before it waits for these, so that the link works while it waits. There are no more
//         CTAs than fit at once, or one could wait for a row that nobody has room to send.
#include <algorithm>

#include "core/expect.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "cuda/system_scope.cuh"
#include "cuda/watchdog.cuh"
#include "kernels/alignment.h"
#include "kernels/collectives/all_reduce_add.h"
#include "kernels/collectives/lamport_sum.cuh"

namespace fathom::kernels {
namespace {

constexpr int kThreads = 128, kCtasPerSm = 8;

struct AllReduceAdd {
  LamportSum sum;
  float4* x;
  uint32_t vectors;  // of all rows
};

__global__ void __launch_bounds__(kThreads, kCtasPerSm)
    all_reduce_add_kernel(const __grid_constant__ AllReduceAdd o) {
  const uint32_t of_row = o.sum.own.vectors, step = gridDim.x * kThreads;
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  float4 own = {};
  if (i < o.vectors) own = o.sum.send(i / of_row, i % of_row);
  for (; i < o.vectors; i += step) {
    const uint32_t next = i + step;
    float4 own_next     = {};
    if (next < o.vectors) own_next = o.sum.send(next / of_row, next % of_row);
    const float4 x = __ldcg(o.x + i);
    o.x[i]         = x + o.sum.sum_of_ranks(i / of_row, i % of_row, own);
    own            = own_next;
  }
}

__device__ inline void wait_for_flag(const std::byte* at, uint32_t flag) {
  Watchdog watchdog(kCollectiveTimeout);
  while (ptx::ld_acquire_sys(reinterpret_cast<const uint32_t*>(at)) != flag) watchdog.check();
}

struct Barrier {
  const int32_t* pass;
  uint32_t index, count;
  int rank, ranks;
  std::byte* receive[kMaxRanks];
};

// Thread q signals rank q and waits for its signal.
__global__ void __launch_bounds__(32) rank_barrier_kernel(const __grid_constant__ Barrier o) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int peer = threadIdx.x;
  if (peer >= o.ranks || peer == o.rank) return;
  const uint32_t flag = static_cast<uint32_t>(*o.pass) * o.count + o.index + 1;
  ptx::fence_acq_rel_sys();  // what earlier kernels of this GPU wrote comes before the signal
  ptx::st_release_sys(reinterpret_cast<uint32_t*>(o.receive[peer]) + o.rank, flag);
  wait_for_flag(o.receive[o.rank] + peer * 4, flag);
  ptx::fence_acq_rel_sys();
}

void check(const Peers& peers, const CollectiveCall& call) {
  const int64_t ranks = peers.layout.ranks;
  FATHOM_EXPECT(ranks >= 2 && ranks <= kMaxRanks && peers.rank >= 0 && peers.rank < ranks &&
                    call.pass.extent(0) == 1 && call.index >= 0 && call.index < call.count &&
                    call.count % 2 == 0,
                "a collective has 2 to 8 ranks, and its index lies below an even count");
}

}  // namespace

void all_reduce_add(View<const float, 3> parts, View<const int32_t, 2> ids, const Peers& peers,
                    const CollectiveCall& call, View<float, 2> x, StreamRef stream) {
  const ReceiveBuffer& to = peers.layout;
  check(peers, call);
  FATHOM_EXPECT(
      parts.extent(0) == x.extent(0) && parts.extent(2) == x.extent(1) && x.extent(1) == to.width &&
          x.extent(0) <= to.max_rows && to.width % 4 == 0 && ids.contiguous() &&
          (ids.size() == 0 || (ids.extent(0) == parts.extent(0) && ids.extent(1) == parts.extent(1))) &&
          parts.contiguous() && x.contiguous() && aligned_to_16(parts.data()) && aligned_to_16(x.data()),
      "all_reduce_add: parts [T, J, H], x [T, H], contiguous, of at most the buffer's rows");
  if (x.size() == 0) return;
  const int half = call.index % 2;
  AllReduceAdd o{.sum     = {.own     = {.parts   = reinterpret_cast<const float4*>(parts.data()),
                                         .ids     = ids.size() > 0 ? ids.data() : nullptr,
                                         .addends = static_cast<int>(parts.extent(1)),
                                         .vectors = static_cast<int>(to.width / 4)},
                             .rank    = peers.rank,
                             .ranks   = static_cast<int>(to.ranks),
                             .step    = (to.rows(half, 1) - to.rows(half, 0)) / 16,
                             .receive = {}},
                 .x       = reinterpret_cast<float4*>(x.data()),
                 .vectors = static_cast<uint32_t>(x.size() / 4)};
  for (size_t r = 0; r < static_cast<size_t>(to.ranks); ++r)
    o.sum.receive[r] = reinterpret_cast<float4*>(peers.receive[r] + to.rows(half, 0));
  const int64_t wanted = (o.vectors + kThreads - 1) / kThreads, fit = int64_t{kCtasPerSm} * multiprocessors();
  launch_with_pdl(all_reduce_add_kernel, static_cast<unsigned>(std::min(wanted, fit)), kThreads, 0, stream,
                  o);
}

void rank_barrier(const Peers& peers, const CollectiveCall& call, StreamRef stream) {
  check(peers, call);
  Barrier o{.pass    = call.pass.data(),
            .index   = static_cast<uint32_t>(call.index),
            .count   = static_cast<uint32_t>(call.count),
            .rank    = peers.rank,
            .ranks   = static_cast<int>(peers.layout.ranks),
            .receive = {}};
  for (size_t r = 0; r < peers.receive.size(); ++r) o.receive[r] = peers.receive[r];
  launch_with_pdl(rank_barrier_kernel, 1, 32, 0, stream, o);
}

}  // namespace fathom::kernels
