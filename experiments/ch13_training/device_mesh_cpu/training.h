// The problem: the gradients of one training step of a small MoE model on four ranks, each a process,
// connected by TCP (src/comm), as ranks of different hosts would be. fp32, 128 features.
//   h = x + W2 f(W1 x)               256 hidden units, f(z) = relu(z)^2
//   y = h + V2[e] f(V1[e] h)         8 experts of 128 hidden units; the token's number mod 8 is its expert
//   loss = |y - target|^2 / 2        summed over the tokens of all ranks
//
// Every variant is the same code (step.cpp) on another mesh of axes ep, dp and tp. With the axes in this
// order rank r holds half r mod 2 of the hidden units and half r / 2 of the experts on every mesh, if not
// more. The gradients of these are a rank's outputs, and all ranks' outputs are all gradients.
#pragma once

#include <array>
#include <cmath>
#include <functional>
#include <string_view>

#include "core/rng.h"
#include "experiments/ch13_training/mlp.h"
#include "lab/metric.h"
#include "lab/problem.h"
#include "lab/rank.h"

namespace fathom::lab::device_mesh_cpu {

inline constexpr int kRanks = 4;
using mlp::kModel;
inline constexpr int64_t kHidden       = 256;  // of the dense layer
inline constexpr int64_t kExperts      = 8;
inline constexpr int64_t kExpertHidden = 128;
inline constexpr int kAxes             = 3;
inline constexpr std::array<const char*, kAxes> kAxisNames{"ep", "dp", "tp"};

// The same checkpoint on all ranks; of variance 1 / depth.
inline Generate weights(uint64_t which, int64_t depth) {
  return generate<float>([which, depth](float* to, int64_t n, uint64_t) {
    const double most = std::sqrt(3.0 / static_cast<double>(depth));
    fill_uniform(to, n, which, -most, most);
  });
}

struct Training {
  View<const float, 2> x, target;  // tokens of this rank, kModel
  // A row for each hidden unit, what goes into it and what comes out of it. A variant's rank copies its part
  // in prepare() and reads nothing else of it.
  View<const float, 2> w1, w2;  // kHidden, kModel
  View<const float, 2> v1, v2;  // kExperts kExpertHidden, kModel
  // The gradients of w1 and w2, v1 and v2, of the parts that this rank has on every mesh.
  View<float, 3> dense;    // 2, kHidden / 2, kModel
  View<float, 3> experts;  // 2, kExperts / 2 kExpertHidden / 2, kModel
  // Workspace: what the step used, in bytes.
  View<int64_t, 1> weight_bytes, activation_bytes;
  View<int64_t, 1> sent_bytes;  // on each axis, and on several at once
  View<uint64_t, 1> nonces;
  int rank;

  Training(const Point& at, Arena& arena, const Rank& me);

  int64_t tokens() const { return x.extent(0); }
  // A rank's even share: a forward pass, and both gradients but that of x.
  Cost cost() const {
    return {.read = (w1.bytes() + w2.bytes() + v1.bytes() + v2.bytes()) / kRanks + x.bytes() + target.bytes(),
            .written = dense.bytes() + experts.bytes(),
            .flops   = static_cast<double>(tokens() * kModel * (10 * kHidden + 12 * kExpertHidden))};
  }
  uint64_t nonce_sum(Context&) const { return nonces(0); }
  void check(Checker& checker, const AllRanks<Training>& ranks) const;
  void metrics(CallMetrics& metrics) const;
};

using Step = std::function<void(const Training&, Context&)>;
// The step on a mesh of axes ep, dp and tp.
Step step_on(std::string_view mesh, const Training& p, Context& context);

Step dp4(const Training& p, Context& context);
Step dp2_tp2(const Training& p, Context& context);
Step ep2_dp2(const Training& p, Context& context);
Step ep2_tp2(const Training& p, Context& context);

}  // namespace fathom::lab::device_mesh_cpu
