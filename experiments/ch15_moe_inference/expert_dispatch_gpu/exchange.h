// Expert parallelism on two GPUs: each has T tokens and holds 16 of 32 experts; a token has four. Rows go to
// the ranks of their experts, and the experts' results come back and are added to the residual stream. What
// experts compute is not part of it: their results are inputs.
//   sorted_r(i) = x_q(t, .)     bf16, 2880 numbers, by expert of rank r, then by rank q, token t, and k
//   out_r(t, h) = 24 sum_q bf16(sum_k parts_q(r T + t, k, h))         over the k whose expert is on rank q
// 24 exchanges one after another, of 24 layers, and two of a token that holds the nonce, in a CUDA graph.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/collectives/expert_all_to_all.h"
#include "lab/problem.h"
#include "lab/rank.h"

namespace fathom::lab::expert_dispatch_gpu {

inline constexpr int kLayers    = 24;
inline constexpr int kRanks     = 2;
inline constexpr int64_t kWidth = 2880, kTopK = 4, kExperts = 32, kExpertsOfRank = kExperts / kRanks;

// One exchange of T tokens of each rank.
struct Exchange {
  View<const bf16, 2> x;           // [T, kWidth]
  View<const int32_t, 2> experts;  // [T, kTopK], of all ranks
  View<const float, 2> weights;    // [T, kTopK]
  View<const float, 3> parts;      // [kRanks T, kTopK, kWidth]: weighted results of this rank's experts
  kernels::DispatchedRows rows;    // what dispatch leaves
  View<float, 2> out;              // [T, kWidth]: the residual stream, which combine adds to

  int64_t tokens() const { return x.extent(0); }
};

struct Dispatch {
  Exchange tokens;
  View<bf16, 2> nonce_row;  // the bytes of the rank's nonce; its experts are two of each rank
  Exchange nonce;
  Rank rank;

  Dispatch(const Point& at, Arena& arena, const Rank& me);

  // At least: rows are read, and the residual stream is read and written.
  Cost cost() const {
    return {.read    = kLayers * (tokens.x.bytes() + tokens.out.bytes()),
            .written = kLayers * tokens.out.bytes(),
            .flops   = kLayers * static_cast<double>(kTopK) * static_cast<double>(tokens.out.size())};
  }
  void check(Checker& checker, const AllRanks<Dispatch>& ranks) const;
  void put_nonce(Context& context) const;
  uint64_t nonce_sum(Context& context) const;
};

// Each captures its call when prepared.
using Call = std::function<void(const Dispatch&, Context&)>;
FATHOM_CUDA_LAUNCHER Call nccl_all_to_all(const Dispatch& p, Context& context);
FATHOM_CUDA_LAUNCHER Call low_latency(const Dispatch& p, Context& context);
FATHOM_CUDA_LAUNCHER Call simple(const Dispatch& p, Context& context);

}  // namespace fathom::lab::expert_dispatch_gpu
