// Math, bytes and limit: expert_all_to_all.h.
//
// A CTA of either kernel sends all that it has to send before it waits for anything, and there are no more
// CTAs than fit at once. So no wait depends on a CTA that has no room to run, on this GPU or another.
//
// Two protocols. Low latency: the receiver polls the data itself, so that it takes one trip over the link and
// no fence. Dispatched rows, whose bits may be any, travel as NCCL's LL has it: eight bytes are four of data
// and a flag, which arrive together. Sums that come back are their own flags (lamport.cuh). Simple: a CTA
// sends a row, fences, and sets its flag. By either, a row is put in its place as soon as it is here, while
// others travel.
//
// dispatch   Each CTA counts for itself: the experts of all tokens of all ranks, a byte each, fit in shared
//            memory. It has a few rows, one after another. The place of an expert row is the number of rows
//            of lower experts, of the expert's rows before the CTA's, and of those among the CTA's. The first
//            two are sums over all rows, in which a warp counts 32 rows for all experts at once: from the
//            bits of their experts, which it has by ballot, lane e knows the rows of expert e. All places
//            follow from the routing alone, and no CTA waits for another of its GPU.
// combine    A CTA adds up its experts' parts of a token of another rank, in registers, and sends the sum.
#include <algorithm>

#include "core/expect.h"
#include "cuda/bf16_pack.cuh"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "cuda/system_scope.cuh"
#include "cuda/warp_reduce.cuh"
#include "cuda/watchdog.cuh"
#include "kernels/alignment.h"
#include "kernels/collectives/expert_all_to_all.h"
#include "kernels/collectives/lamport.cuh"

namespace fathom::kernels {
namespace {

constexpr int kThreads   = 384;  // a row of 2880 and its weights at once
constexpr int kCtasPerSm = 2;
constexpr int kExperts   = static_cast<int>(kMaxExperts);
constexpr int kNone      = 0xFF;  // the byte of an expert that is not on a rank
static_assert(kNone >= kExperts && kThreads / 32 >= kMaxDispatchTopK && kMaxDispatchTopK == 8);

// What both kernels know of the ranks, and where in each rank's buffer the rows lie that they send.
struct Link {
  int rank, ranks, tokens, top_k, experts_per_rank;
  const int32_t* experts;  // [tokens, top_k]
  const int32_t* pass;
  uint32_t index, count;
  int64_t rows, rows_step, row_bytes, flags, flags_step;  // steps from one source to the next
  std::byte* receive[kMaxRanks];

  __device__ uint32_t flag() const { return static_cast<uint32_t>(*pass) * count + index + 1; }
  __device__ int next(int r) const { return (rank + r) % ranks; }  // each rank begins with another one
  __device__ std::byte* row(int of_rank, int source, int token) const {
    return receive[of_rank] + rows + source * rows_step + token * row_bytes;
  }
  __device__ uint32_t* row_flag(int of_rank, int source, int token) const {
    return reinterpret_cast<uint32_t*>(receive[of_rank] + flags + source * flags_step) + token;
  }
  // The ranks that have experts of the token, a bit each.
  __device__ uint32_t ranks_of(int token) const {
    uint32_t mask = 0;
#pragma unroll
    for (int k = 0; k < kMaxDispatchTopK; ++k) {
      if (k >= top_k) break;
      const uint32_t owner = expert(token, k) / static_cast<uint32_t>(experts_per_rank);
      if (owner < static_cast<uint32_t>(ranks)) mask |= 1u << owner;  // not padding
    }
    return mask;
  }
  // The token's experts as rank `of_rank` numbers them, a byte each.
  __device__ uint2 experts_on(int of_rank, int token) const {
    uint2 packed = {~0u, ~0u};
#pragma unroll
    for (int k = 0; k < kMaxDispatchTopK; ++k) {
      if (k >= top_k || token >= tokens) break;
      const uint32_t local = expert(token, k) - static_cast<uint32_t>(of_rank * experts_per_rank);
      if (local >= static_cast<uint32_t>(experts_per_rank)) continue;
      uint32_t& word = k < 4 ? packed.x : packed.y;
      word           = (word & ~(0xFFu << k % 4 * 8)) | local << k % 4 * 8;
    }
    return packed;
  }

 private:
  __device__ uint32_t expert(int token, int k) const {
    return static_cast<uint32_t>(__ldcg(experts + token * top_k + k));
  }
};

// Vector v of a row with flags, on its way. The row's first half has the first two words of all vectors, so
// that a warp stores 512 bytes one after another, and not half of each sector.
__device__ inline void send_with_flags(std::byte* row, int64_t half, int v, const uint4& data,
                                       uint32_t flag) {
  ptx::st_volatile_v4(row + v * 16, {data.x, flag, data.y, flag});
  ptx::st_volatile_v4(row + half + v * 16, {data.z, flag, data.w, flag});
}

__device__ inline uint4 receive_with_flags(const std::byte* row, int64_t half, int v, uint32_t flag) {
  Watchdog watchdog(kCollectiveTimeout);
  for (;;) {
    const uint4 a = ptx::ld_volatile_v4(row + v * 16), b = ptx::ld_volatile_v4(row + half + v * 16);
    if (a.y == flag && a.w == flag && b.y == flag && b.w == flag) return {a.x, a.z, b.x, b.z};
    watchdog.check();
  }
}

// By one thread, after a barrier of the CTA that wrote the row.
__device__ inline void set_flag(uint32_t* at, uint32_t flag) {
  ptx::fence_acq_rel_sys();
  ptx::st_release_sys(at, flag);
}

// By one thread, before a barrier of the CTA that reads the row.
__device__ inline void wait_for_flag(const uint32_t* at, uint32_t flag) {
  Watchdog watchdog(kCollectiveTimeout);
  while (ptx::ld_acquire_sys(at) != flag) watchdog.check();
}

// Byte j of eight.
__device__ inline int byte_of(const uint2& packed, int j) {
  return static_cast<int>((j < 4 ? packed.x : packed.y) >> j % 4 * 8 & 0xFF);
}

struct Dispatch {
  Link link;
  const uint4* x;
  const float* weights;
  int vectors;              // of 16 bytes in a row of x; kWeightVectors more travel with it
  int64_t told, told_step;  // where the sources' experts lie in each buffer
  uint4* sorted;
  int32_t *offsets, *sorted_ids, *experts;
  float* received_weights;

  __device__ std::byte* told_at(int of_rank, int source, int token) const {
    return link.receive[of_rank] + told + source * told_step + token * 16;
  }
  // Vector v of what travels of this rank's token.
  __device__ uint4 outgoing(int token, int v) const {
    if (v < vectors) return __ldcg(x + int64_t{token} * vectors + v);
    uint32_t word[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int k = 4 * (v - vectors) + j;
      word[j]     = k < link.top_k ? __float_as_uint(__ldcg(weights + token * link.top_k + k)) : 0;
    }
    return {word[0], word[1], word[2], word[3]};
  }
};
constexpr int kWeightVectors = kMaxDispatchTopK / 4;

__device__ inline void tell_experts(const Dispatch& o, int tokens, uint32_t flag) {
  const int peer = threadIdx.x;
  if (peer >= o.link.ranks || peer == o.link.rank) return;
  for (int t = blockIdx.x; t < tokens; t += gridDim.x) {
    const uint2 e = o.link.experts_on(peer, t);
    ptx::st_volatile_v4(o.told_at(peer, o.link.rank, t), {e.x, flag, e.y, flag});
  }
}

__device__ inline uint2 told_experts(const Dispatch& o, int source, int token, uint32_t flag) {
  if (source == o.link.rank) return o.link.experts_on(source, token);
  const std::byte* from = o.told_at(o.link.rank, source, token);
  Watchdog watchdog(kCollectiveTimeout);
  for (;;) {
    const uint4 e = ptx::ld_volatile_v4(from);
    if (e.y == flag && e.w == flag) return {e.x, e.z};
    watchdog.check();
  }
}

template <bool kLowLatency>
__device__ inline void send_rows(const Dispatch& o, uint32_t flag) {
  const Link& link = o.link;
  for (int t = blockIdx.x; t < link.tokens; t += gridDim.x) {
    const uint32_t to = link.ranks_of(t) & ~(1u << link.rank);
    if (to == 0) continue;
    for (int v = threadIdx.x; v < o.vectors + kWeightVectors; v += kThreads) {
      const uint4 data = o.outgoing(t, v);
      for (int r = 1; r < link.ranks; ++r)
        if (const int peer = link.next(r); to >> peer & 1) {
          std::byte* const row = link.row(peer, link.rank, t);
          if constexpr (kLowLatency)
            send_with_flags(row, link.row_bytes / 2, v, data, flag);
          else
            reinterpret_cast<uint4*>(row)[v] = data;
        }
    }
    if constexpr (!kLowLatency) {
      __syncthreads();  // the row is sent
      const int peer = threadIdx.x;
      if (peer < link.ranks && to >> peer & 1) set_flag(link.row_flag(peer, link.rank, t), flag);
    }
  }
}

// Expert rows of each expert, of lane e's e, e + 32, ..
constexpr int kExpertsOfLane = kExperts / 32;
struct Counts {
  int all[kExpertsOfLane] = {}, before[kExpertsOfLane] = {};
};

// Adds those of 32 rows, a row's experts in each lane. `before`: of the rows among them that count as such.
__device__ inline void count_rows(const uint2& experts, uint32_t before, int top_k, int experts_per_rank,
                                  Counts& counts) {
  const int lane = threadIdx.x % 32;
  for (int k = 0; k < top_k; ++k) {
    const int expert = byte_of(experts, k);
    uint32_t equal   = ~__ballot_sync(~0u, expert >> 7);  // rows whose expert is here and has the lane's bits
#pragma unroll
    for (int bit = 0; bit < 5; ++bit) {
      const uint32_t set = __ballot_sync(~0u, expert >> bit & 1);
      equal &= lane >> bit & 1 ? set : ~set;
    }
    const uint32_t bit5 = __ballot_sync(~0u, expert >> 5 & 1), bit6 = __ballot_sync(~0u, expert >> 6 & 1);
#pragma unroll
    for (int i = 0; i < kExpertsOfLane; ++i) {
      if (32 * i >= experts_per_rank) break;
      const uint32_t rows = equal & (i & 1 ? bit5 : ~bit5) & (i & 2 ? bit6 : ~bit6);
      counts.all[i] += __popc(rows);
      counts.before[i] += __popc(rows & before);
    }
  }
}

// How many of the bytes begin, .., end - 1 equal e; begin is a multiple of 4. By a whole warp, to all lanes.
__device__ inline int count_equal(const uint32_t* words, int begin, int end, int e) {
  const uint32_t pattern = static_cast<uint32_t>(e) * 0x01010101u;
  int bits               = 0;
  for (int w = begin / 4 + threadIdx.x % 32; 4 * w < end; w += 32) {
    const uint32_t equal = __vcmpeq4(words[w], pattern);
    const int bytes      = end - 4 * w;
    bits += __popc(bytes >= 4 ? equal : equal & ((1u << 8 * bytes) - 1));
  }
  return warp_reduce_sum(bits / 8);
}

// Counts become numbers of rows before an expert. By one warp; firsts has one element more than counts.
__device__ inline void scan(int* counts_then_firsts) {
  const int lane  = threadIdx.x;
  int* const mine = counts_then_firsts + lane * kExpertsOfLane;
  int sum         = 0;
  for (int i = 0; i < kExpertsOfLane; ++i) sum += mine[i];
  int before = warp_inclusive_sum(sum, lane) - sum;
  for (int i = 0; i < kExpertsOfLane; ++i) {
    const int count = mine[i];
    mine[i]         = before;
    before += count;
  }
  if (lane == 31) counts_then_firsts[kExperts] = before;
}

template <bool kLowLatency>
__global__ void __launch_bounds__(kThreads, kCtasPerSm)
    expert_dispatch_kernel(const __grid_constant__ Dispatch o) {
  extern __shared__ uint2 all_experts[];  // of all ranks' tokens; then the sorted rows of the CTA's, or -1
  __shared__ int first[kExperts + 1];     // of each expert, its first sorted row; before that, its rows
  __shared__ int before[kExperts];        // its rows before the CTA's
  const Link& link = o.link;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  ptx::griddepcontrol_launch_dependents();
  for (int e = threadIdx.x; e < kExperts; e += kThreads) first[e] = before[e] = 0;
  ptx::griddepcontrol_wait();
  const uint32_t flag = link.flag();
  // Of no tokens one is told, which no rank has experts of: so every call waits for every rank.
  const int tokens = max(link.tokens, 1), told = link.ranks * tokens;
  tell_experts(o, tokens, flag);
  send_rows<kLowLatency>(o, flag);
  __syncthreads();  // the counts are zero

  const int rows = link.ranks * link.tokens, ctas = static_cast<int>(gridDim.x);
  const int begin = static_cast<int>(blockIdx.x) * rows / ctas;
  const int end   = (static_cast<int>(blockIdx.x) + 1) * rows / ctas;
  Counts counts;
  for (int base = warp * 32; base < told; base += kThreads) {
    const int row = base + lane;
    uint2 e       = {~0u, ~0u};
    if (row < told) all_experts[row] = e = told_experts(o, row / tokens, row % tokens, flag);
    count_rows(e, __ballot_sync(~0u, row < begin), link.top_k, link.experts_per_rank, counts);
  }
#pragma unroll
  for (int i = 0; i < kExpertsOfLane; ++i) {
    if (counts.all[i] > 0) atomicAdd(&first[32 * i + lane], counts.all[i]);
    if (counts.before[i] > 0) atomicAdd(&before[32 * i + lane], counts.before[i]);
  }
  __syncthreads();  // all experts are here and counted
  if (warp == 0) scan(first);
  __syncthreads();  // counts are first rows
  if (blockIdx.x == 0)
    for (int e = threadIdx.x; e <= link.experts_per_rank; e += kThreads) o.offsets[e] = first[e];

  int* const places = reinterpret_cast<int*>(all_experts + told);
  for (int slot = warp; slot < (end - begin) * link.top_k; slot += kThreads / 32) {
    const int row = begin + slot / link.top_k, k = slot % link.top_k, id = row * link.top_k + k;
    const int expert = byte_of(all_experts[row], k);
    const bool here  = expert != kNone;
    const int among =
        count_equal(reinterpret_cast<const uint32_t*>(all_experts), 8 * begin, 8 * row + k, expert);
    const int sorted = here ? first[expert] + before[expert] + among : -1;
    if (lane == 0) {
      places[slot]  = sorted;
      o.experts[id] = here ? expert : -1;
      if (here)
        o.sorted_ids[sorted] = id;
      else
        o.received_weights[id] = 0;
    }
  }
  __syncthreads();  // places are known

  for (int row = begin; row < end; ++row) {
    const uint2 e = all_experts[row];
    if ((e.x & e.y) == ~0u) continue;  // no expert of it is here
    const int source = row / link.tokens, token = row % link.tokens;
    const bool travelled = source != link.rank;
    const int* const to  = places + (row - begin) * link.top_k;
    std::byte* const at  = link.row(link.rank, source, token);
    if (!kLowLatency && travelled) {
      if (threadIdx.x == 0) wait_for_flag(link.row_flag(link.rank, source, token), flag);
      __syncthreads();  // the row is here
    }
    for (int v = threadIdx.x; v < o.vectors + kWeightVectors; v += kThreads) {
      const uint4 data = !travelled    ? o.outgoing(token, v)
                         : kLowLatency ? receive_with_flags(at, link.row_bytes / 2, v, flag)
                                       : __ldcg(reinterpret_cast<const uint4*>(at) + v);
      if (v < o.vectors) {
        for (int k = 0; k < link.top_k; ++k)
          if (to[k] >= 0) o.sorted[int64_t{to[k]} * o.vectors + v] = data;
      } else {
        const uint32_t word[4] = {data.x, data.y, data.z, data.w};
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (const int k = 4 * (v - o.vectors) + j; k < link.top_k && to[k] >= 0)
            o.received_weights[row * link.top_k + k] = __uint_as_float(word[j]);
      }
    }
  }
}

struct Combine {
  Link link;
  const float4* parts;
  const int32_t* dispatched;
  float4* x;
  int vectors;  // of eight numbers in a row

  // The experts of a token that are here, a bit for each k.
  __device__ uint32_t here(int row) const {
    uint32_t mask = 0;
#pragma unroll
    for (int k = 0; k < kMaxDispatchTopK; ++k)
      if (k < link.top_k && __ldcg(dispatched + row * link.top_k + k) >= 0) mask |= 1u << k;
    return mask;
  }
  // Eight numbers of this rank's sum of a token. The loads of four parts are in flight at once; a part that
  // is not here is zero, which changes no bit of a sum that began with zero.
  __device__ uint4 sum_here(int row, uint32_t mask, int v) const {
    constexpr int kLoads = 4;
    float4 a = {}, b = {};
    for (int first = 0; mask >> first != 0; first += kLoads) {
      float4 c[kLoads], d[kLoads];
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        const float4* const from = parts + ((int64_t{row} * link.top_k + first + j) * vectors + v) * 2;
        const bool is_here       = mask >> (first + j) & 1;
        c[j]                     = is_here ? __ldcg(from) : float4{};
        d[j]                     = is_here ? __ldcg(from + 1) : float4{};
      }
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        a.x += c[j].x, a.y += c[j].y, a.z += c[j].z, a.w += c[j].w;
        b.x += d[j].x, b.y += d[j].y, b.z += d[j].z, b.w += d[j].w;
      }
    }
    return {pack_bf16x2(a.x, a.y), pack_bf16x2(a.z, a.w), pack_bf16x2(b.x, b.y), pack_bf16x2(b.z, b.w)};
  }
};

// Two numbers as bf16, added to two in fp32. That lamport.cuh brings +0 as -0 changes no bit, as `high`
// begins with +0 and so is never -0.
__device__ inline void add_bf16x2(uint32_t pair, float& low, float& high) {
  low += __uint_as_float(pair << 16);
  high += __uint_as_float(pair & 0xFFFF0000u);
}

template <bool kLowLatency>
__device__ inline void send_sums(const Combine& o, uint32_t flag) {
  const Link& link = o.link;
  for (int t = blockIdx.x; t < link.tokens; t += gridDim.x)
    for (int r = 1; r < link.ranks; ++r) {
      const int peer = link.next(r), row = peer * link.tokens + t;
      const uint32_t here = o.here(row);
      if (here == 0) continue;
      std::byte* const to = link.row(peer, link.rank, t);
      for (int v = threadIdx.x; v < o.vectors; v += kThreads) {
        const uint4 sum = o.sum_here(row, here, v);
        if constexpr (kLowLatency)
          lamport_send(to + v * 16, sum);
        else
          reinterpret_cast<uint4*>(to)[v] = sum;
      }
      if constexpr (!kLowLatency) {
        __syncthreads();  // the sum is sent
        if (threadIdx.x == 0) set_flag(link.row_flag(peer, link.rank, t), flag);
      }
    }
}

template <bool kLowLatency>
__global__ void __launch_bounds__(kThreads, kCtasPerSm)
    expert_combine_add_kernel(const __grid_constant__ Combine o) {
  const Link& link = o.link;
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const uint32_t flag = link.flag();
  send_sums<kLowLatency>(o, flag);
  for (int t = blockIdx.x; t < link.tokens; t += gridDim.x) {
    const int own       = link.rank * link.tokens + t;
    const uint32_t from = link.ranks_of(t), here = o.here(own);
    if constexpr (!kLowLatency) {
      const int peer = threadIdx.x;
      if (peer < link.ranks && peer != link.rank && from >> peer & 1)
        wait_for_flag(link.row_flag(link.rank, peer, t), flag);
      __syncthreads();  // all ranks' sums are here
    }
    for (int v = threadIdx.x; v < o.vectors && from != 0; v += kThreads) {
      float4* const x = o.x + (int64_t{t} * o.vectors + v) * 2;
      const float4 c = __ldcg(x), d = __ldcg(x + 1);
      float4 a = {}, b = {};
      for (int r = 0; r < link.ranks; ++r) {
        if (!(from >> r & 1)) continue;
        std::byte* const at = link.row(link.rank, r, t) + v * 16;
        const uint4 sum     = r == link.rank ? o.sum_here(own, here, v)
                              : kLowLatency  ? lamport_receive(at)
                                             : __ldcg(reinterpret_cast<const uint4*>(at));
        add_bf16x2(sum.x, a.x, a.y);
        add_bf16x2(sum.y, a.z, a.w);
        add_bf16x2(sum.z, b.x, b.y);
        add_bf16x2(sum.w, b.z, b.w);
      }
      x[0] = {c.x + a.x, c.y + a.y, c.z + a.z, c.w + a.w};
      x[1] = {d.x + b.x, d.y + b.y, d.z + b.z, d.w + b.w};
    }
  }
}

Link link_of(View<const int32_t, 2> experts, const AllToAllPeers& peers, const AllToAllCall& call,
             int64_t width, AllToAllProtocol protocol) {
  const AllToAllBuffer& to = peers.layout;
  FATHOM_EXPECT(to.ranks >= 2 && to.ranks <= kMaxRanks && peers.rank >= 0 && peers.rank < to.ranks &&
                    call.pass.extent(0) == 1 && call.index >= 0 && call.index < call.count &&
                    call.count % 2 == 0,
                "an all-to-all has 2 to 8 ranks, and its index lies below an even count");
  FATHOM_EXPECT(peers.experts_per_rank >= 1 && peers.experts_per_rank <= kMaxExperts &&
                    experts.extent(1) >= 1 && experts.extent(1) <= kMaxDispatchTopK && experts.contiguous(),
                "an all-to-all has 1 to 128 experts on a rank, and 1 to 8 of a token");
  FATHOM_EXPECT(to.max_tokens >= 1 && experts.extent(0) <= to.max_tokens &&
                    experts.extent(0) * to.ranks <= kMaxAllToAllTokens && width == to.width && width % 8 == 0,
                "an all-to-all has at most the buffer's tokens, 4096 altogether, of the buffer's width");
  FATHOM_EXPECT(protocol == AllToAllProtocol::simple || experts.extent(0) <= kLowLatencyTokens,
                "an all-to-all: so many tokens have no room in low_latency");
  Link link{.rank             = peers.rank,
            .ranks            = static_cast<int>(to.ranks),
            .tokens           = static_cast<int>(experts.extent(0)),
            .top_k            = static_cast<int>(experts.extent(1)),
            .experts_per_rank = static_cast<int>(peers.experts_per_rank),
            .experts          = experts.data(),
            .pass             = call.pass.data(),
            .index            = static_cast<uint32_t>(call.index),
            .count            = static_cast<uint32_t>(call.count),
            .receive          = {}};
  for (size_t r = 0; r < peers.receive.size(); ++r) link.receive[r] = peers.receive[r];
  return link;
}

// The CTAs for so many rows: no more than fit at once.
int64_t ctas_for(int64_t rows) {
  return std::clamp<int64_t>(rows, 1, int64_t{kCtasPerSm} * multiprocessors());
}

}  // namespace

void expert_dispatch(View<const bf16, 2> x, View<const int32_t, 2> experts, View<const float, 2> weights,
                     const AllToAllPeers& peers, const AllToAllCall& call, const DispatchedRows& to,
                     AllToAllProtocol protocol, StreamRef stream) {
  const AllToAllBuffer& layout = peers.layout;
  Dispatch o{.link = link_of(experts, peers, call, x.extent(1), protocol)};
  const int64_t T = x.extent(0), K = experts.extent(1), rows = layout.ranks * T;
  FATHOM_EXPECT(experts.extent(0) == T && weights.extent(0) == T && weights.extent(1) == K &&
                    x.contiguous() && weights.contiguous() && aligned_to_16(x.data()),
                "expert_dispatch: x [T, H], experts and weights [T, top_k], contiguous");
  FATHOM_EXPECT(to.sorted.extent(0) == rows * K && to.sorted.extent(1) == x.extent(1) &&
                    to.offsets.extent(0) == peers.experts_per_rank + 1 &&
                    to.sorted_ids.extent(0) == rows * K && to.experts.extent(0) == rows &&
                    to.experts.extent(1) == K && to.weights.extent(0) == rows && to.weights.extent(1) == K,
                "expert_dispatch: room for the tokens of all ranks");
  FATHOM_EXPECT(to.sorted.contiguous() && to.offsets.contiguous() && to.sorted_ids.contiguous() &&
                    to.experts.contiguous() && to.weights.contiguous() && aligned_to_16(to.sorted.data()),
                "expert_dispatch: contiguous results");
  const int half         = call.index % 2;
  const bool low_latency = protocol == AllToAllProtocol::low_latency;
  const auto at          = [&](int64_t source) {
    return low_latency ? layout.low_latency_rows(half, source) : layout.rows(half, source);
  };
  o.link.rows        = at(0);
  o.link.rows_step   = at(1) - at(0);
  o.link.row_bytes   = layout.row_bytes() * (low_latency ? 2 : 1);
  o.link.flags       = layout.row_flags(half, 0);
  o.link.flags_step  = layout.row_flags(half, 1) - layout.row_flags(half, 0);
  o.x                = reinterpret_cast<const uint4*>(x.data());
  o.weights          = weights.data();
  o.vectors          = static_cast<int>(x.extent(1) / 8);
  o.told             = layout.experts(half, 0);
  o.told_step        = layout.experts(half, 1) - layout.experts(half, 0);
  o.sorted           = reinterpret_cast<uint4*>(to.sorted.data());
  o.offsets          = to.offsets.data();
  o.sorted_ids       = to.sorted_ids.data();
  o.experts          = to.experts.data();
  o.received_weights = to.weights.data();
  const int64_t ctas = ctas_for(rows), rows_of_cta = (rows + ctas - 1) / ctas;
  const auto shared = static_cast<size_t>(8 * std::max(rows, layout.ranks) + 4 * K * rows_of_cta);
  launch_with_pdl(low_latency ? expert_dispatch_kernel<true> : expert_dispatch_kernel<false>,
                  static_cast<unsigned>(ctas), kThreads, shared, stream, o);
}

void expert_combine_add(View<const float, 3> parts, View<const int32_t, 2> dispatched,
                        View<const int32_t, 2> experts, const AllToAllPeers& peers, const AllToAllCall& call,
                        View<float, 2> x, AllToAllProtocol protocol, StreamRef stream) {
  const AllToAllBuffer& layout = peers.layout;
  Combine o{.link = link_of(experts, peers, call, x.extent(1), protocol)};
  const int64_t T = x.extent(0), K = experts.extent(1), rows = layout.ranks * T;
  FATHOM_EXPECT(experts.extent(0) == T && parts.extent(0) == rows && parts.extent(1) == K &&
                    parts.extent(2) == x.extent(1) && dispatched.extent(0) == rows &&
                    dispatched.extent(1) == K && parts.contiguous() && dispatched.contiguous() &&
                    x.contiguous() && aligned_to_16(parts.data()) && aligned_to_16(x.data()),
                "expert_combine_add: parts [ranks T, top_k, H], x [T, H], contiguous");
  if (T == 0) return;
  const bool low_latency = protocol == AllToAllProtocol::low_latency;
  const auto at          = [&](int64_t source) {
    return low_latency ? layout.low_latency_sums(source) : layout.sums(source);
  };
  o.link.rows       = at(0);
  o.link.rows_step  = at(1) - at(0);
  o.link.row_bytes  = layout.sum_bytes();
  o.link.flags      = layout.sum_flags(0);
  o.link.flags_step = layout.sum_flags(1) - layout.sum_flags(0);
  o.parts           = reinterpret_cast<const float4*>(parts.data());
  o.dispatched      = dispatched.data();
  o.x               = reinterpret_cast<float4*>(x.data());
  o.vectors         = static_cast<int>(x.extent(1) / 8);
  launch_with_pdl(low_latency ? expert_combine_add_kernel<true> : expert_combine_add_kernel<false>,
                  static_cast<unsigned>(ctas_for(T)), kThreads, 0, stream, o);
}

}  // namespace fathom::kernels
