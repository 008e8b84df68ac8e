// A graph of work that fans out and joins: four branches of four stages each, and a sum over the branches.
//   v(b, 0, .) = in(b, .),   v(b, s + 1, .) = leaky integrator of v(b, s, .),   out = sum over b of v(b, 4,
//   .)
// Stage s is long in branch s and short in the others, as where requests differ in length.
#pragma once

#include <functional>

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::event_dependencies {

inline constexpr int kBranches = 4, kStages = 4;

struct Branches {
  int64_t steps;               // of a short stage
  View<const float, 2> in;     // [kBranches, n]
  View<float, 1> out;          // [n]
  View<float, 3> after_stage;  // workspace, [kStages, kBranches, n]

  Branches(const Point& at, Arena& arena);
  int64_t n() const { return in.extent(1); }
  int64_t steps_of(int64_t branch, int64_t stage) const { return branch == stage ? 4 * steps : steps; }
  Cost cost() const;
  Sum expected(int64_t i) const;
};

// Make the streams; the returned call is timed.
using Call = std::function<void(const Branches&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call device_sync(const Branches&, StreamRef);
FATHOM_CUDA_LAUNCHER Call stage_events(const Branches&, StreamRef);
FATHOM_CUDA_LAUNCHER Call branch_events(const Branches&, StreamRef);

}  // namespace fathom::lab::event_dependencies
