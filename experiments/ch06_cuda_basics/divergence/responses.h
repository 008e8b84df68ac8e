// The problem: n samples of four materials, in random order. The response of material m to a load t is a
// polynomial P_m(t), and
//   out(i) = mean of P_kind(i)(t) over 0 < t < load(i)      by the midpoint rule with kNodes nodes
#pragma once

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Point;
struct Cost;
struct Sum;
}  // namespace fathom::lab

namespace fathom::lab::divergence {

inline constexpr int kKinds  = 4;
inline constexpr int kDegree = 15;
inline constexpr int kNodes  = 32;

// Of t^k in P_kind. Any numbers between -1 and 1 will do, as long as no two materials share them.
FATHOM_HD constexpr float coefficient(int kind, int k) {
  return static_cast<float>((37 * k + 53 * kind + 5) % 97 - 48) / 64;
}

struct Responses {
  View<const float, 1> load;
  View<const uint8_t, 1> kind;
  View<float, 1> out;

  Responses(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void branch(const Responses& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void regrouped(const Responses& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void table(const Responses& p, StreamRef stream);

}  // namespace fathom::lab::divergence
