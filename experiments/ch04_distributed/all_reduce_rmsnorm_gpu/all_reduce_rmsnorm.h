// A sum over ranks in a decode step is added to the residual stream, whose norm the next matrix reads.
//   x_r(t, h) = 48 sum_q in_q(t, h)                                          fp32 [rows, 2880]
//   y_r(t, h) = x_r(t, h) weight_r(h) / sqrt(mean_h x_r(t, h)^2 + epsilon)   bf16 [rows, 2880]
// for every rank r; q over all ranks. 48 sums one after another, each with its norm, and two of a row that
// holds the nonce, in a CUDA graph. The norm of the last sum stays.
#pragma once

#include <cstdint>
#include <functional>

#include "core/dtype.h"
#include "lab/problem.h"
#include "lab/rank.h"

namespace fathom::lab::all_reduce_rmsnorm_gpu {

inline constexpr int kSums      = 48;
inline constexpr int64_t kWidth = 2880;
inline constexpr float kEpsilon = 1e-5f;

struct NormedSums {
  View<const float, 2> in;
  View<const float, 1> weight;
  View<float, 2> x;
  View<bf16, 2> y;
  // A row whose first eight numbers are the bytes of the rank's nonce, twice the sum of all ranks' rows, and
  // its norm.
  View<float, 2> nonce, nonces;
  View<bf16, 2> nonce_norm;
  View<float, 2> scratch;  // for a sum that is not yet added
  Rank rank;

  NormedSums(const Point& at, Arena& arena, const Rank& me)
      : in(arena.input<float>({at["rows"], kWidth}, Uniform{-1, 1})),
        weight(arena.input<float>({kWidth}, Uniform{0.5, 1.5})),
        x(arena.output<float>({at["rows"], kWidth})),
        y(arena.output<bf16>({at["rows"], kWidth})),
        nonce(arena.workspace<float>({1, kWidth})),
        nonces(arena.workspace<float>({1, kWidth})),
        nonce_norm(arena.workspace<bf16>({1, kWidth})),
        scratch(arena.workspace<float>({at["rows"] + 1, kWidth})),
        rank(me) {}

  Cost cost() const {
    return {.read    = kSums * (in.bytes() + x.bytes()),
            .written = kSums * (x.bytes() + y.bytes()),
            .flops   = kSums * static_cast<double>(rank.size() + 4) * static_cast<double>(in.size())};
  }
  void check(Checker& checker, const AllRanks<NormedSums>& ranks) const;
  void put_nonce(Context& context) const;
  uint64_t nonce_sum(Context& context) const;
};

// Each captures its call when prepared.
using Call = std::function<void(const NormedSums&, Context&)>;
FATHOM_CUDA_LAUNCHER Call apart(const NormedSums& p, Context& context);
FATHOM_CUDA_LAUNCHER Call fused(const NormedSums& p, Context& context);
FATHOM_CUDA_LAUNCHER Call nccl_then_rmsnorm(const NormedSums& p, Context& context);

}  // namespace fathom::lab::all_reduce_rmsnorm_gpu
