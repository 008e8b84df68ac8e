// The problem: out(i, d) = x(i, d) + table(id(i), d), fp32 rows of 64: a small table, used again and again,
// beside streams that are used once.
#pragma once

#include <cstdint>
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

namespace fathom::lab::l2_persistence {

constexpr int kWidth = 64;  // of a row: 256 bytes

struct Lookup {
  View<const float, 2> x;
  View<const int32_t, 1> id;
  View<const float, 2> table;
  View<float, 2> out;

  Lookup(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i, int64_t d) const;
};

FATHOM_CUDA_LAUNCHER void unmanaged(const Lookup& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void evict_first(const Lookup& p, StreamRef stream);

FATHOM_CUDA_LAUNCHER void window(const Lookup& p, StreamRef stream);

}  // namespace fathom::lab::l2_persistence
