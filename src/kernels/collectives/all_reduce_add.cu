// Two kernels for two regimes; math and bytes: all_reduce_add.h.
//
// Few rows (LL, "low latency", NCCL's name for it): eight bytes travel as a number and a flag, which arrive
// together. The receiver polls the numbers themselves: one trip over the link, no fence, twice the bytes.
//
// Many rows (Simple): a CTA sends a row, fences, and sets a flag; then it waits for the others' row before
// that one, and adds it, so that memory works while the link does. There are no more CTAs than fit at once,
// or one could wait for a row that nobody has room to send.
#include <algorithm>

#include "core/expect.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "cuda/system_scope.cuh"
#include "kernels/alignment.h"
#include "kernels/collectives/all_reduce_add.h"

namespace fathom::kernels {
namespace {

constexpr int kThreads = 128, kCtasPerSm = 4;

struct AllReduce {
  const float4* parts;
  const int32_t* ids;  // null: none
  float4* x;
  const int32_t* pass;
  uint32_t index, count;
  int rank, ranks, addends, vectors;  // vectors of 4 numbers in a row
  int64_t rows;
  std::byte* receive[kMaxRanks];
  // In each rank's buffer: offset of what comes from rank 0, and from one rank to the next.
  int64_t data, data_step, flags, flags_step;

  __device__ uint32_t flag() const { return static_cast<uint32_t>(*pass) * count + index + 1; }
  __device__ float4 own_sum(int64_t row, int vector) const {
    float4 sum = {};
    for (int j = 0; j < addends; ++j) {
      if (ids && __ldcg(ids + row * addends + j) < 0) continue;
      const float4 part = __ldcg(parts + (row * addends + j) * vectors + vector);
      sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    return sum;
  }
};

__device__ inline float4 operator+(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// Ends a wait that lasts too long: the host sees a failed launch instead of a hang.
class Patience {
 public:
  __device__ void check() {
    if (++polls_ % 4096 != 0) return;
    const uint64_t now = ptx::globaltimer();
    if (begin_ == 0) begin_ = now;
    if (now - begin_ > uint64_t{kAllReduceTimeout} * 1'000'000'000) __trap();
  }

 private:
  uint64_t begin_ = 0;
  uint32_t polls_ = 0;
};

__device__ inline void wait_for_flag(const std::byte* at, uint32_t flag) {
  Patience patience;
  while (ptx::ld_acquire_sys(reinterpret_cast<const uint32_t*>(at)) != flag) patience.check();
}

// A thread has four numbers: 32 bytes with their flags.
__global__ void __launch_bounds__(kThreads) all_reduce_add_ll_kernel(const __grid_constant__ AllReduce o) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int64_t v = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (v >= o.rows * o.vectors) return;
  const uint32_t flag = o.flag();
  const float4 own    = o.own_sum(v / o.vectors, static_cast<int>(v % o.vectors));
  const uint4 first   = {__float_as_uint(own.x), flag, __float_as_uint(own.y), flag};
  const uint4 second  = {__float_as_uint(own.z), flag, __float_as_uint(own.w), flag};
  for (int r = 1; r < o.ranks; ++r) {  // each rank begins with the next one
    std::byte* to = o.receive[(o.rank + r) % o.ranks] + o.data + o.rank * o.data_step + v * 32;
    ptx::st_volatile_v4(to, first);
    ptx::st_volatile_v4(to + 16, second);
  }
  const float4 x = __ldcg(o.x + v);
  float4 sum     = {};
  Patience patience;
  for (int r = 0; r < o.ranks; ++r) {
    float4 part = own;
    if (r != o.rank) {
      const std::byte* from = o.receive[o.rank] + o.data + r * o.data_step + v * 32;
      uint4 a, b;
      for (;;) {
        a = ptx::ld_volatile_v4(from);
        b = ptx::ld_volatile_v4(from + 16);
        if (a.y == flag && a.w == flag && b.y == flag && b.w == flag) break;
        patience.check();
      }
      part = {__uint_as_float(a.x), __uint_as_float(a.z), __uint_as_float(b.x), __uint_as_float(b.z)};
    }
    sum = r == 0 ? part : sum + part;
  }
  o.x[v] = x + sum;
}

// Sends this GPU's sums of a row, and says so.
__device__ inline void send_row(const AllReduce& o, int64_t row, uint32_t flag) {
  for (int v = threadIdx.x; v < o.vectors; v += kThreads) {
    const float4 own = o.own_sum(row, v);
    const int64_t at = o.data + o.rank * o.data_step + (row * o.vectors + v) * 16;
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
__device__ inline void add_row(const AllReduce& o, int64_t row, uint32_t flag) {
  const int peer = threadIdx.x;
  if (peer < o.ranks && peer != o.rank)
    wait_for_flag(o.receive[o.rank] + o.flags + peer * o.flags_step + row * 4, flag);
  __syncthreads();  // all ranks' rows are here
  for (int v = threadIdx.x; v < o.vectors; v += kThreads) {
    const int64_t i = row * o.vectors + v;
    float4 sum      = {};
    for (int r = 0; r < o.ranks; ++r) {
      const float4 part =
          __ldcg(reinterpret_cast<const float4*>(o.receive[o.rank] + o.data + r * o.data_step + i * 16));
      sum = r == 0 ? part : sum + part;
    }
    o.x[i] = __ldcg(o.x + i) + sum;
  }
}

__global__ void __launch_bounds__(kThreads, kCtasPerSm)
    all_reduce_add_simple_kernel(const __grid_constant__ AllReduce o) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const uint32_t flag = o.flag();
  const int64_t step  = gridDim.x;
  for (int64_t row = blockIdx.x; row < o.rows + step; row += step) {
    if (row < o.rows) send_row(o, row, flag);
    if (row >= step) add_row(o, row - step, flag);
  }
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
                    const CollectiveCall& call, View<float, 2> x, AllReduceProtocol protocol,
                    StreamRef stream) {
  const ReceiveBuffer& to = peers.layout;
  check(peers, call);
  FATHOM_EXPECT(
      parts.extent(0) == x.extent(0) && parts.extent(2) == x.extent(1) && x.extent(1) == to.width &&
          x.extent(0) <= to.max_rows && to.width % 4 == 0 && ids.contiguous() &&
          (ids.size() == 0 || (ids.extent(0) == parts.extent(0) && ids.extent(1) == parts.extent(1))) &&
          parts.contiguous() && x.contiguous() && aligned_to_16(parts.data()) && aligned_to_16(x.data()),
      "all_reduce_add: parts [T, J, H], x [T, H], contiguous, of at most the buffer's rows");
  if (x.size() == 0) return;
  const bool low_latency = protocol == AllReduceProtocol::low_latency;
  FATHOM_EXPECT(!low_latency || x.extent(0) <= kLowLatencyRows,
                "all_reduce_add: so many rows have no room in low_latency");
  const int half    = call.index % 2;
  const auto offset = [&](int64_t source) {
    return low_latency ? to.low_latency(half, source) : to.rows(half, source);
  };
  AllReduce o{.parts      = reinterpret_cast<const float4*>(parts.data()),
              .ids        = ids.size() > 0 ? ids.data() : nullptr,
              .x          = reinterpret_cast<float4*>(x.data()),
              .pass       = call.pass.data(),
              .index      = static_cast<uint32_t>(call.index),
              .count      = static_cast<uint32_t>(call.count),
              .rank       = peers.rank,
              .ranks      = static_cast<int>(to.ranks),
              .addends    = static_cast<int>(parts.extent(1)),
              .vectors    = static_cast<int>(to.width / 4),
              .rows       = x.extent(0),
              .receive    = {},
              .data       = offset(0),
              .data_step  = offset(1) - offset(0),
              .flags      = to.row_flags(half, 0),
              .flags_step = to.row_flags(half, 1) - to.row_flags(half, 0)};
  for (size_t r = 0; r < peers.receive.size(); ++r) o.receive[r] = peers.receive[r];
  if (low_latency) {
    const int64_t ctas = (o.rows * o.vectors + kThreads - 1) / kThreads;
    return launch_with_pdl(all_reduce_add_ll_kernel, static_cast<unsigned>(ctas), kThreads, 0, stream, o);
  }
  const int64_t ctas = std::min<int64_t>(o.rows, int64_t{kCtasPerSm} * multiprocessors());
  launch_with_pdl(all_reduce_add_simple_kernel, static_cast<unsigned>(ctas), kThreads, 0, stream, o);
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
