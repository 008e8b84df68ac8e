// Expert parallelism on the GPUs of one host (ranks): tokens go to the ranks of their experts (dispatch), and
// the experts' results come back and are added to the residual stream (combine).
//   dispatch   sorted_q(i) = x_r(t)                             on every rank q that has experts of token t
//   combine    x_r(t, h) += sum_q bf16(sum_k parts_q(r T + t, k, h))    k over the token's experts on rank q
// for every rank r; sums over q in the order of the ranks, over k in the order of the token's list. So bits
// depend neither on timing nor on the rank that a token lies on.
//
// A row travels once to each rank that has any of its experts, not once to each expert, and one sum comes
// back: of two ranks and top-4, even routing, 0.95 rows a token instead of 2 each way. Where rows of one rank
// have several experts there, that rank copies them, in its own memory.
// A row lands in a place that its source and its number give. So nobody asks for room, and no host and no
// exchange of counts come before the rows: every rank tells every other the experts of each token, 8 bytes,
// and counts for itself what it gets. Room is for all tokens of all ranks, whatever the routing, so that a
// captured CUDA graph stays valid.
// (DeepEP's low-latency kernels, github.com/deepseek-ai/DeepEP, send a row once to each expert, to a place
// from an atomic counter; pplx-kernels, github.com/perplexityai/pplx-kernels, the counts before the rows.)
//
// bytes   over the link, for each token and other rank with an expert of it: 2 H + 32 there, twice that in
//         low_latency, and 2 H back; and 16 for each token and other rank
//         in memory, even routing: 2 H (1 + top_k) a token there, 4 H (2 + top_k) back
// limit   few tokens: the latency of the link, one trip each way; many: its bandwidth in each direction
//
// Ranks are in lockstep (ranks.h): all make the same calls with the same extents in the same order, of
// dispatch and combine in turn. A rank with fewer tokens pads them with experts -1.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/collectives/ranks.h"
#include "kernels/cost.h"
#include "kernels/moe/expert_rows.h"

namespace fathom::kernels {

inline constexpr int kMaxDispatchTopK       = 8;
inline constexpr int64_t kMaxAllToAllTokens = 4096;  // of all ranks together
inline constexpr int64_t kLowLatencyTokens  = 512;   // of a rank, of which buffers have room in low_latency

// How rows travel. low_latency: the data say that they are here, at most kLowLatencyTokens; simple: with a
// flag for each row, behind a fence.
enum class AllToAllProtocol { low_latency, simple };

// Where the others send to, in the memory of each rank. What dispatch sends has two halves, which successive
// calls use in turn: a rank that is in the next dispatch has done with this one. What combine sends needs
// one: every rank has done with it before it comes to the next dispatch, for which the others wait.
struct AllToAllBuffer {
  int64_t ranks = 1, max_tokens = 0, width = 0;

  int64_t row_bytes() const { return 2 * width + 4 * kMaxDispatchTopK; }  // a row and its experts' weights
  int64_t sum_bytes() const { return 2 * width; }

  // Byte offsets of what comes from rank `source`.
  int64_t experts(int half, int64_t source) const { return area(half, source, 16 * max_tokens); }
  int64_t row_flags(int half, int64_t source) const {
    return experts(2, 0) + area(half, source, 4 * max_tokens);
  }
  int64_t low_latency_rows(int half, int64_t source) const {
    return row_flags(2, 0) + area(half, source, 2 * row_bytes() * low_latency_tokens());
  }
  int64_t rows(int half, int64_t source) const {
    return low_latency_rows(2, 0) + area(half, source, row_bytes() * max_tokens);
  }
  int64_t sum_flags(int64_t source) const { return rows(2, 0) + area(0, source, 4 * max_tokens); }
  int64_t low_latency_sums(int64_t source) const {
    return sum_flags(ranks) + area(0, source, sum_bytes() * low_latency_tokens());
  }
  int64_t sums(int64_t source) const {
    return low_latency_sums(ranks) + area(0, source, sum_bytes() * max_tokens);
  }
  int64_t bytes() const { return sums(ranks); }

 private:
  int64_t low_latency_tokens() const { return std::min(max_tokens, kLowLatencyTokens); }
  int64_t area(int half, int64_t source, int64_t bytes) const {
    return (half * ranks + source) * ((bytes + 255) / 256 * 256);
  }
};

struct AllToAllPeers {
  int rank                 = 0;
  int64_t experts_per_rank = 0;  // expert e lies on rank e / experts_per_rank; at most kMaxExperts
  AllToAllBuffer layout;         // of at least one token
  // Of each rank, layout.bytes() that were zero before the first call, aligned to 256 bytes, which this GPU
  // can write (cuda/peer_access.h).
  std::array<std::byte*, kMaxRanks> receive = {};
};

// Tells a dispatch and its combine from all others, so that old flags don't count. `pass` [1] is in device
// memory, which no kernel of the chain of dependent launches writes (cuda/launch.cuh): 1, 2, .. with each
// forward pass. `index` is the call's place in its pass: 0, 1, .. below `count`, which is even. Even ones use
// one half of the buffer, odd ones the other; so a pass makes an even number of calls.
struct AllToAllCall {
  View<const int32_t, 1> pass;
  int index = 0, count = 2;
};

// What a rank has after dispatch, on its device: T tokens of each rank, of which token t of rank q is token
// q T + t here, sorted by this rank's experts. `{offsets, sorted_ids}` are ExpertRows, and `sorted` is what
// experts_up_grouped_gemm (kernels/moe/experts_grouped_gemm.h) takes; with `weights`,
// experts_down_grouped_gemm makes from it the parts that combine takes. All contiguous.
struct DispatchedRows {
  View<bf16, 2> sorted;         // [ranks T top_k, H], of which the first offsets(E) are valid
  View<int32_t, 1> offsets;     // [E + 1]; E: experts_per_rank
  View<int32_t, 1> sorted_ids;  // [ranks T top_k]: token top_k + k of a sorted row; as many are valid
  View<int32_t, 2> experts;     // [ranks T, top_k], numbered from this rank's first; -1: of another rank
  View<float, 2> weights;       // [ranks T, top_k]; 0 where `experts` is -1
};

// x [T, H], experts and weights [T, top_k]; contiguous, x and to.sorted aligned to 16 bytes. Experts that no
// rank has (-1: padding) are left out. T <= max_tokens and ranks T <= kMaxAllToAllTokens; H = width, a
// multiple of 8; top_k <= kMaxDispatchTopK; 2 to kMaxRanks ranks. Of no tokens, ranks still wait for
// each other.
void expert_dispatch(View<const bf16, 2> x, View<const int32_t, 2> experts, View<const float, 2> weights,
                     const AllToAllPeers& peers, const AllToAllCall& call, const DispatchedRows& to,
                     AllToAllProtocol protocol, StreamRef stream);

// parts [ranks T, top_k, H]: the weighted results of this rank's experts, read where `dispatched`, the
// DispatchedRows::experts of the same call, is not -1. experts [T, top_k]: what this rank dispatched; x
// [T, H]. parts and x aligned to 16 bytes; the rest as in expert_dispatch.
void expert_combine_add(View<const float, 3> parts, View<const int32_t, 2> dispatched,
                        View<const int32_t, 2> experts, const AllToAllPeers& peers, const AllToAllCall& call,
                        View<float, 2> x, AllToAllProtocol protocol, StreamRef stream);

// With even routing, in which a rank gets as many expert rows as its tokens have.
inline Cost expert_dispatch_cost(int64_t tokens, int64_t top_k, int64_t width) {
  const auto T = static_cast<double>(tokens), K = static_cast<double>(top_k), H = static_cast<double>(width);
  return {.read = T * (2 * H + 8 * K), .written = T * K * (2 * H + 12)};
}
inline Cost expert_combine_add_cost(int64_t tokens, int64_t top_k, int64_t width) {
  const auto T = static_cast<double>(tokens), K = static_cast<double>(top_k), H = static_cast<double>(width);
  return {.read = T * H * (4 * K + 4), .written = 4 * T * H, .flops = T * H * K};
}

}  // namespace fathom::kernels
