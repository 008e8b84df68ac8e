// A decode step on several GPUs sums over the ranks twice a layer, and adds each sum to the residual stream.
//   out_r(t, h) = 48 sum_q in_q(t, h)          fp32 [rows, 2880], for every rank r; q over all ranks
// 48 sums one after another, of 24 layers, and two of a row that holds the nonce, in a CUDA graph.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>

#include "lab/problem.h"
#include "lab/rank.h"

namespace fathom::lab::all_reduce_gpu {

inline constexpr int kSums      = 48;
inline constexpr int64_t kWidth = 2880;

struct Sums {
  View<const float, 2> in;
  View<float, 2> out;
  // A row whose first eight numbers are the bytes of the rank's nonce, and twice the sum of all ranks' rows.
  View<float, 1> nonce, nonces;
  View<float, 2> scratch;  // for a sum that is not yet added
  Rank rank;

  Sums(const Point& at, Arena& arena, const Rank& me)
      : in(arena.input<float>({at["rows"], kWidth}, Uniform{-1, 1})),
        out(arena.output<float>({at["rows"], kWidth})),
        nonce(arena.workspace<float>({kWidth})),
        nonces(arena.workspace<float>({kWidth})),
        scratch(arena.workspace<float>({at["rows"] + 1, kWidth})),
        rank(me) {}

  Cost cost() const {
    return {.read    = kSums * in.bytes(),
            .written = kSums * out.bytes(),
            .flops   = kSums * static_cast<double>(rank.size()) * static_cast<double>(in.size())};
  }
  Sum expected(const AllRanks<Sums>& ranks, int64_t t, int64_t h) const {
    Sum sum{.length = kSums * (ranks.size() + 1)};
    for (int q = 0; q < ranks.size(); ++q) {
      sum.value += kSums * static_cast<double>(ranks[q].in(t, h));
      sum.magnitude += kSums * std::abs(static_cast<double>(ranks[q].in(t, h)));
    }
    return sum;
  }
  void put_nonce(Context& context) const;
  uint64_t nonce_sum(Context& context) const;
};

// Each captures its call when prepared.
using Call = std::function<void(const Sums&, Context&)>;
FATHOM_CUDA_LAUNCHER Call nccl_then_add(const Sums& p, Context& context);
FATHOM_CUDA_LAUNCHER Call row_flags(const Sums& p, Context& context);
FATHOM_CUDA_LAUNCHER Call low_latency(const Sums& p, Context& context);

}  // namespace fathom::lab::all_reduce_gpu
