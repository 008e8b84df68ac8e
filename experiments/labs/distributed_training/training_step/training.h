// The problem: one step of data-parallel training with AdamW, on two ranks, each a process, connected by TCP
// (src/comm). fp32, 8 layers of 128 features and 128 hidden units, W = 1.05 MB of weights:
//   h[l + 1] = h[l] + W2[l] f(W1[l] h[l])      f(z) = relu(z)^2; h[0] = x
//   loss     = |h[8] - target|^2 / 2           summed over the tokens of all ranks
//
// A variant is a plan: who keeps what, when it is exchanged, and in what format. Outputs are the loss and the
// new weights and moments of the rank's shard, which is half of each layer's hidden units: those of both
// ranks are the whole model.
#pragma once

#include <functional>
#include <memory>

#include "experiments/ch13_training/mlp_checkpoint.h"
#include "lab/metric.h"
#include "lab/problem.h"
#include "lab/rank.h"
#include "wire.h"

namespace fathom::lab::distributed_training {

using mlp::kModel, mlp::kUnit;
inline constexpr int kRanks      = 2;
inline constexpr int64_t kLayers = 8;
inline constexpr int64_t kHidden = 128;
inline constexpr int64_t kShard  = kHidden / kRanks;  // hidden units
inline constexpr int64_t kStep   = 1000;  // the number of the step, which AdamW's bias correction needs

// What a step leaves behind beside its answer.
struct Report {
  int64_t weight_bytes, gradient_bytes,
      moment_bytes;          // that a step in place keeps, with whole layers in work
  int64_t activation_bytes;  // kept for the backward pass
  int64_t sent_bytes;        // to the other rank, without headers
  int64_t communication_ns, communication_cpu_ns, exposed_ns;  // comm::AsyncGroup::Times
  double hidden_share;
  double link_ns;  // of sent_bytes, at the rate of large messages that prepare() found
  Wire wire;
};

struct Training {
  View<const float, 2> x, target;  // tokens of this rank, kModel
  // The checkpoint, the same on all ranks: weights and moments, [layer][hidden unit][into it, out of
  // it][kModel]. A rank copies what it keeps in prepare() and reads nothing else of it.
  View<const float, 4> w, m, v;
  View<float, 1> loss;                 // of all ranks' tokens
  View<float, 4> new_w, new_m, new_v;  // of the rank's shard: kLayers, kShard, 2, kModel
  View<std::byte, 1> report_bytes;     // workspace: a Report
  View<uint64_t, 1> nonces;
  int64_t link_mb_s;  // what a rank may send; 0: as much as the loopback takes
  int rank;

  Training(const Point& at, Arena& arena, const Rank& me);

  int64_t tokens() const { return x.extent(0); }
  Report& report() const { return *reinterpret_cast<Report*>(report_bytes.data()); }
  // A rank's even share: forward and backward of its tokens, and the update of its shard.
  Cost cost() const {
    const double weights = static_cast<double>(w.size());
    return {.read    = w.bytes() + m.bytes() / kRanks + v.bytes() / kRanks + x.bytes() + target.bytes(),
            .written = new_w.bytes() + new_m.bytes() + new_v.bytes(),
            .flops   = 6 * static_cast<double>(tokens()) * weights + 14 * weights / kRanks};
  }
  uint64_t nonce_sum(Context&) const { return nonces(0); }
  void check(Checker& checker, const AllRanks<Training>& ranks) const;
  void metrics(CallMetrics& metrics) const;
};

struct Plan {
  bool sharded          = false;      // FSDP; else every rank keeps and updates everything (DDP)
  bool overlapped       = false;      // exchanges beside the computation, by a thread of their own
  int64_t bucket_bytes  = INT64_MAX;  // of gradients, where they are not sharded; all at once by default
  int64_t micro_batches = 1;          // passes of a step, whose gradients are exchanged once, in the last
  Wire wire             = Wire::fp32;
};

using Step = std::function<void(const Training&, Context&)>;
Step step_of(const Plan& plan, const Training& p, Context& context);

// Variants, a file each.
Step ddp(const Training& p, Context& context);
Step ddp_buckets(const Training& p, Context& context);
Step ddp_no_sync(const Training& p, Context& context);
Step fsdp(const Training& p, Context& context);
Step fsdp_prefetch(const Training& p, Context& context);
Step fsdp_fp8(const Training& p, Context& context);
Step all_together(const Training& p, Context& context);

}  // namespace fathom::lab::distributed_training
