// The problem: n random walks of 16 steps through a table too large for any cache. Walk i stands at
//   p(0) = 2654435761 i,   p(k + 1) = table(p(k)) + i,   all modulo the table's size, a power of two
// and out(i) = p(16). The address of a step is known only when the load of the step before has arrived.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Point;
struct Cost;
}  // namespace fathom::lab

namespace fathom::lab::latency_hiding {

inline constexpr int kSteps = 16;

// Neighbours start far apart (Knuth's multiplicative hash), so that no step is coalesced.
FATHOM_HD constexpr uint32_t start_of(uint32_t walk) { return walk * 2654435761u; }

struct Walk {
  View<const uint32_t, 1> table;
  View<uint32_t, 1> out;

  Walk(const Point& at, Arena& arena);
  Cost cost() const;
  int64_t expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void four_warps(const Walk& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void eight_warps(const Walk& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void all_warps(const Walk& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void two_walks(const Walk& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void sixteen_walks(const Walk& p, StreamRef stream);

}  // namespace fathom::lab::latency_hiding
