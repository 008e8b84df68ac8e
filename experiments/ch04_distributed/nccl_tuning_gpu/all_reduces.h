// NCCL's all-reduce of two GPUs, under other settings than its own choice.
//   out_r(i) = sum_q in_q(i)          fp32 [floats], for every rank r; q over all ranks
// Eight of them one after another in a CUDA graph, each of the same message: the nonce, then `in`.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>

#include "lab/problem.h"
#include "lab/rank.h"

namespace fathom::lab::nccl_tuning_gpu {

inline constexpr int kSums      = 8;
inline constexpr int64_t kNonce = 8;  // numbers, each a byte of it, so that sums are exact

struct AllReduces {
  View<const float, 1> in;
  View<float, 1> message;  // [kNonce + floats]
  View<float, 1> sums;     // of all ranks' messages
  View<float, 1> out;      // what of it is checked
  Rank rank;

  AllReduces(const Point& at, Arena& arena, const Rank& me)
      : in(arena.input<float>({at["floats"]}, Uniform{-1, 1})),
        message(arena.workspace<float>({kNonce + at["floats"]})),
        sums(arena.output<float>({kNonce + at["floats"]})),
        out(sums.data() + kNonce, {at["floats"]}),
        rank(me) {}

  Cost cost() const {
    return {.read    = kSums * in.bytes(),
            .written = kSums * out.bytes(),
            .flops   = kSums * static_cast<double>(rank.size() - 1) * static_cast<double>(in.size())};
  }
  Sum expected(const AllRanks<AllReduces>& ranks, int64_t i) const {
    Sum sum{.length = ranks.size()};
    for (int q = 0; q < ranks.size(); ++q) {
      sum.value += static_cast<double>(ranks[q].in(i));
      sum.magnitude += std::abs(static_cast<double>(ranks[q].in(i)));
    }
    return sum;
  }
  void put_nonce(Context& context) const;  // writes the whole message
  uint64_t nonce_sum(Context& context) const;
};

FATHOM_CUDA_LAUNCHER void copy_behind_nonce(const AllReduces& p, StreamRef stream);

// What NCCL leaves to its user, by communicator. -1 and null: its own choice, for each message.
struct Tuning {
  const char* algorithm = nullptr;  // NCCL_ALGO: "Ring", "Tree"
  const char* protocol  = nullptr;  // NCCL_PROTO: "LL", "LL128", "Simple"
  int cga_cluster       = -1;       // ncclConfig_t: these three
  int max_ctas          = -1;
};

using Call = std::function<void(const AllReduces&, Context&)>;
// Joins a communicator of this tuning, and captures the graph. By all ranks at the same time.
FATHOM_CUDA_LAUNCHER Call tuned(const AllReduces& p, Context& context, const Tuning& tuning);

}  // namespace fathom::lab::nccl_tuning_gpu
