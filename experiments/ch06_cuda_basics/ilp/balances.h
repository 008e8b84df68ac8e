// The problem: n accounts, each with a factor of growth x and a deposit y, over kPeriods periods:
//   r <- r x + y, from r = 0
// One fused multiply-add a period, and each needs the one before it.
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

namespace fathom::lab::ilp {

inline constexpr int kPeriods = 4096;

struct Balances {
  View<const float, 1> growth;
  View<const float, 1> deposit;
  View<float, 1> out;

  Balances(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void one_chain(const Balances& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void two_chains(const Balances& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void four_chains(const Balances& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void eight_chains(const Balances& p, StreamRef stream);

}  // namespace fathom::lab::ilp
