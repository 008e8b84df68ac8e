// The forward pass of layers whose weights are spread over the GPUs (ZeRO-3, FSDP): each rank has half of the
// rows of every weight matrix, and gathers the others before the layer's product.
//   weights_r(l, o, i) = shards_q(l, o mod W/2, i)       q = 2 o / W       bf16 [layers, W, W], for every r
//   y_r(l, t, o)       = sum_i x_r(t, i) weights_r(l, o, i)                bf16 [layers, tokens, W]
// All layers have the same x, so that each can be checked by itself. All-gather is in place, as in FSDP: a
// rank's own rows lie in `weights` before the step.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>

#include "core/dtype.h"
#include "lab/problem.h"
#include "lab/rank.h"

namespace fathom::lab::copy_engine_collectives_gpu {

inline constexpr int kRanks  = 2;
inline constexpr int kLayers = 4;

struct ShardedLayers {
  View<const bf16, 3> shards;  // [kLayers, W / kRanks, W]
  View<const bf16, 2> x;       // [tokens, W]
  View<bf16, 3> weights, y;
  View<uint64_t, 2> nonces;    // of all ranks, 16 bytes each, gathered as the weights are
  View<std::byte, 1> scratch;  // of cuBLASLt
  Rank rank;

  ShardedLayers(const Point& at, Arena& arena, const Rank& me)
      : shards(arena.input<bf16>({kLayers, at["width"] / kRanks, at["width"]}, Normal{})),
        x(arena.input<bf16>({at["tokens"], at["width"]}, Normal{})),
        weights(arena.output<bf16>({kLayers, at["width"], at["width"]})),
        y(arena.output<bf16>({kLayers, at["tokens"], at["width"]})),
        nonces(arena.workspace<uint64_t>({kRanks, 2})),
        scratch(arena.workspace<std::byte>({int64_t{32} << 20})),
        rank(me) {}

  int64_t shard_rows() const { return shards.extent(1); }
  int64_t nonce_bytes() const { return nonces.bytes() / kRanks; }
  int64_t shard_bytes() const { return shards.bytes() / kLayers; }  // of a layer
  bf16* rows_of(int64_t layer, int64_t owner) const { return &weights(layer, owner * shard_rows(), 0); }

  // A rank reads its own rows, and the products read all of them.
  Cost cost() const {
    return {.read      = shards.bytes() + (y.size() > 0 ? weights.bytes() : 0),
            .written   = weights.bytes() / kRanks + y.bytes(),
            .flops     = 2 * static_cast<double>(y.size()) * static_cast<double>(x.extent(1)),
            .flop_type = DType::bf16};
  }
  void check(Checker& checker, const AllRanks<ShardedLayers>& ranks) const;
  // Puts the rank's own rows in place too.
  void put_nonce(Context& context) const;
  uint64_t nonce_sum(Context& context) const;
};

FATHOM_CUDA_LAUNCHER void place_own_rows(const ShardedLayers& p, StreamRef stream);

// Each exchanges addresses or joins a communicator when it is prepared.
using Call = std::function<void(const ShardedLayers&, Context&)>;
FATHOM_CUDA_LAUNCHER Call nccl_in_turn(const ShardedLayers& p, Context& context);
FATHOM_CUDA_LAUNCHER Call nccl_beside(const ShardedLayers& p, Context& context);
FATHOM_CUDA_LAUNCHER Call nccl_4_ctas(const ShardedLayers& p, Context& context);
FATHOM_CUDA_LAUNCHER Call peer_stores(const ShardedLayers& p, Context& context);
FATHOM_CUDA_LAUNCHER Call copy_engines(const ShardedLayers& p, Context& context);

}  // namespace fathom::lab::copy_engine_collectives_gpu
