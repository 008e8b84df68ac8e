// Causal attention over a sequence that is spread over two GPUs, eight heads of 128, bf16. Each rank has the
// queries, keys and values of its half, and needs the outputs of its half.
//   out(i, h) = sum_j p(i, j) v(j, h),   p(i, .) = softmax over j <= i of q(i, h) . k(j, h) / sqrt(128)
// Four chunks of c rows; rank 0 has chunks 0 and 1, rank 1 has 2 and 3.
#pragma once

#include <cstdint>
#include <functional>

#include "core/dtype.h"
#include "core/expect.h"
#include "lab/problem.h"
#include "lab/rank.h"

namespace fathom::lab::ring_attention_gpu {

inline constexpr int kRanks     = 2;
inline constexpr int64_t kHeads = 8, kHeadDim = 128;
inline constexpr float kScale = 0.08838834764f;  // 1 / sqrt(kHeadDim)

using Rows      = View<bf16, 3>;  // [rows, kHeads, kHeadDim]
using ConstRows = View<const bf16, 3>;

struct RingAttention {
  int64_t tokens;
  Rank rank;
  ConstRows q, k, v;  // of this rank's half
  Rows out;
  // Workspace. What arrives, and copies of own rows beside it where attention wants one range of keys.
  Rows queries;                  // [tokens / 2]
  Rows keys, values;             // [tokens]
  Rows part, more;               // outputs over some of the keys, and over others
  View<float, 2> lse, more_lse;  // [kHeads, tokens / 2]: log of their sums of exponentials
  View<uint64_t, 2> nonces;      // of all ranks, 16 bytes each, sent as keys are

  RingAttention(const Point& at, Arena& arena, const Rank& me)
      : tokens(at["tokens"]),
        rank(me),
        q(arena.input<bf16>({half(), kHeads, kHeadDim}, Normal{})),
        k(arena.input<bf16>({half(), kHeads, kHeadDim}, Normal{})),
        v(arena.input<bf16>({half(), kHeads, kHeadDim}, Normal{})),
        out(arena.output<bf16>({half(), kHeads, kHeadDim})),
        queries(arena.workspace<bf16>({half(), kHeads, kHeadDim})),
        keys(arena.workspace<bf16>({tokens, kHeads, kHeadDim})),
        values(arena.workspace<bf16>({tokens, kHeads, kHeadDim})),
        part(arena.workspace<bf16>({half(), kHeads, kHeadDim})),
        more(arena.workspace<bf16>({half(), kHeads, kHeadDim})),
        lse(arena.workspace<float>({kHeads, half()})),
        more_lse(arena.workspace<float>({kHeads, half()})),
        nonces(arena.workspace<uint64_t>({kRanks, 2})) {
    FATHOM_EXPECT(tokens % 4 == 0, "tokens: the sequence is cut into four chunks");
  }

  int64_t half() const { return tokens / kRanks; }
  int64_t chunk() const { return tokens / 4; }
  int64_t nonce_bytes() const { return nonces.bytes() / kRanks; }
  // An even share: two products of 128 for each pair of a query and a key that it sees.
  double pairs() const { return static_cast<double>(tokens) * static_cast<double>(tokens + 1) / 2; }
  Cost cost() const {
    return {.read      = 3 * q.bytes(),
            .written   = out.bytes(),
            .flops     = 4 * static_cast<double>(kHeads * kHeadDim) * pairs() / kRanks,
            .flop_type = DType::bf16};
  }
  void check(Checker& checker, const AllRanks<RingAttention>& ranks) const;
  void put_nonce(Context& context) const;
  uint64_t nonce_sum(Context& context) const;
};

// Rows [first, first + n).
template <class T>
View<T, 3> rows_of(View<T, 3> of, int64_t first, int64_t n) {
  return View<T, 3>(of.data() + first * kHeads * kHeadDim, {n, kHeads, kHeadDim});
}

// Each exchanges addresses, and lists the blocks of its attention, when it is prepared.
using Call = std::function<void(const RingAttention&, Context&)>;
FATHOM_CUDA_LAUNCHER Call all_gather(const RingAttention& p, Context& context);
FATHOM_CUDA_LAUNCHER Call ring(const RingAttention& p, Context& context);
FATHOM_CUDA_LAUNCHER Call zigzag(const RingAttention& p, Context& context);

}  // namespace fathom::lab::ring_attention_gpu
