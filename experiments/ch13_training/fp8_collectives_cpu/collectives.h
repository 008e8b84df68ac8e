// The problem: what a step of fully sharded training exchanges of n weights, on two ranks connected by TCP
// (src/comm). Each rank owns a shard of n / 2 weights in fp32.
//   weights  = the shards of both ranks, as products read them      an all-gather
//   sums(i)  = the sum over ranks of gradients(own + i)             a reduce-scatter
// The variants differ in the format in which numbers travel. All give weights in bf16 and sums in fp32.
#pragma once

#include <cmath>
#include <functional>

#include "lab/metric.h"
#include "lab/problem.h"
#include "lab/rank.h"

namespace fathom::lab::fp8_collectives_cpu {

inline constexpr int kRanks = 2;

struct Collectives {
  View<const float, 1> shard;     // weights of this rank
  View<const bf16, 1> gradients;  // of all weights, from this rank's tokens
  View<bf16, 1> weights;          // of all ranks
  View<float, 1> sums;            // of this rank's shard
  View<int64_t, 1> sent_bytes;    // workspace
  View<uint64_t, 1> nonces;
  int rank;

  Collectives(const Point& at, Arena& arena, const Rank& me)
      : shard(arena.input<float>({at["shard"]}, Normal{0, 0.02})),
        gradients(arena.input<bf16>({kRanks * at["shard"]}, Normal{0, 1e-3})),
        weights(arena.output<bf16>({kRanks * at["shard"]})),
        sums(arena.output<float>({at["shard"]})),
        sent_bytes(arena.workspace<int64_t>({1})),
        nonces(arena.workspace<uint64_t>({1})),
        rank(me.rank()) {}

  Cost cost() const {
    return {.read = shard.bytes() + gradients.bytes(), .written = weights.bytes() + sums.bytes()};
  }
  uint64_t nonce_sum(Context&) const { return nonces(0); }
  void check(Checker& checker, const AllRanks<Collectives>& ranks) const;
  void metrics(CallMetrics& metrics) const {
    metrics["sent_bytes"] = {static_cast<double>(sent_bytes(0)), "lower"};
  }
};

using Exchange = std::function<void(const Collectives&, Context&)>;

enum class Format { bf16, fp8 };
Exchange exchange(Format of_weights, Format of_gradients, const Collectives& p, Context& context);

Exchange bf16_both(const Collectives& p, Context& context);
Exchange fp8_gather(const Collectives& p, Context& context);
Exchange fp8_both(const Collectives& p, Context& context);

}  // namespace fathom::lab::fp8_collectives_cpu
