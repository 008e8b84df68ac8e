// A mixture-of-experts layer for one token: a router chooses kTopK of E experts, and only those run.
//   logit(e) = Wr(e) . x / 16;   the kTopK largest (of equal ones the lower e), their softmax gives weights
//   out      = sum over the chosen e of weight(e) W2(e) relu(W1(e) x)
// x and Wr are multiples of 1/64, so that logits are exact in fp32 and the choice does not depend on
// rounding.
#pragma once

#include <cstdint>
#include <functional>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::router_graph {

inline constexpr int kTopK       = 4;
inline constexpr int kMaxExperts = 32;
inline constexpr int kMultiple   = 8;  // of which the width is a multiple

struct Layer {
  int64_t width;
  View<const bf16, 1> x;       // width
  View<const bf16, 2> router;  // E x width
  View<const bf16, 3> up;      // E x width x width
  View<const bf16, 3> down;    // the same
  View<float, 1> out;          // width
  View<int32_t, 1> fired;      // E: 1 + the place of the expert that ran there, 0 where none did
  View<int32_t, 1> chosen;     // workspace: kTopK experts
  View<float, 1> weight;       // workspace: theirs
  View<float, 2> hidden;       // workspace: kTopK x width
  View<float, 2> partial;      // workspace: kTopK x width
  View<int32_t, 1> on_host;    // workspace, page-locked: kTopK experts

  Layer(const Point& at, Arena& arena);
  FATHOM_HD int experts() const { return static_cast<int>(router.extent(0)); }
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void host_branches(const Layer& p, StreamRef stream);

// These capture graphs when prepared.
using Call = std::function<void(const Layer&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call switch_nodes(const Layer& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER Call switches_side_by_side(const Layer& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER Call if_nodes(const Layer& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER Call indexed_each(const Layer& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER Call indexed(const Layer& p, StreamRef stream);

}  // namespace fathom::lab::router_graph
