// The problem: one step of data-parallel training with AdamW, on four ranks, each a process, connected by TCP
// (src/comm), as ranks of different hosts would be. fp32, 8 layers of 128 features and 128 hidden units:
//   h[l + 1] = h[l] + W2[l] f(W1[l] h[l])      f(z) = relu(z)^2; h[0] = x
//   loss     = |h[8] - target|^2 / 2           summed over the tokens of all ranks
//
// The variants differ in what a rank keeps of weights, gradients and the optimizer's two moments: all of
// them, or a shard of a quarter (ZeRO: Rajbhandari et al., 2020, arXiv 1910.02054; PyTorch's FSDP is stage
// 3). Rank r's shard is hidden units [32 r, 32 r + 32) of each layer. Its new weights and moments are the
// outputs of the rank, and all ranks' outputs are the whole model.
#pragma once

#include <functional>
#include <string_view>

#include "experiments/ch13_training/mlp.h"
#include "lab/metric.h"
#include "lab/problem.h"
#include "lab/rank.h"

namespace fathom::lab::fully_sharded_cpu {

using mlp::kModel;
inline constexpr int kRanks      = 4;
inline constexpr int64_t kLayers = 8;
inline constexpr int64_t kHidden = 128;
inline constexpr int64_t kShard  = kHidden / kRanks;  // hidden units
inline constexpr int64_t kStep   = 1000;  // the number of the step, which AdamW's bias correction needs

struct Training {
  View<const float, 2> x, target;  // tokens of this rank, kModel
  // The checkpoint, the same on all ranks: weights and moments, [layer][hidden unit][into it, out of
  // it][kModel]. A variant's rank copies what it keeps in prepare() and reads nothing else of it.
  View<const float, 4> w, m, v;
  View<float, 4> new_w, new_m, new_v;  // of the rank's shard: kLayers, kShard, 2, kModel
  // Workspace: what the step used, in bytes.
  View<int64_t, 1> weight_bytes, gradient_bytes, moment_bytes, sent_bytes;
  View<uint64_t, 1> nonces;
  int rank;

  Training(const Point& at, Arena& arena, const Rank& me);

  int64_t tokens() const { return x.extent(0); }
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

// What lies in shards: stage 1 the moments, 2 the gradients too, 3 the weights too.
enum class Stage { ddp, zero1, zero2, zero3 };

using Step = std::function<void(const Training&, Context&)>;
// On a mesh of axes tp and dp; shards are those of a dp group.
Step step_of(Stage stage, std::string_view mesh, const Training& p, Context& context);

Step ddp(const Training& p, Context& context);
Step zero1(const Training& p, Context& context);
Step zero2(const Training& p, Context& context);
Step zero3(const Training& p, Context& context);
Step zero3_tp2(const Training& p, Context& context);

}  // namespace fathom::lab::fully_sharded_cpu
