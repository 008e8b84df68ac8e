// out(i) = sum_t tap(t) in(i + t): a filter of 32 taps over a signal, fp32.
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

namespace fathom::lab::async_prefetch {

struct Filter {
  static constexpr int kTaps = 32;

  View<const float, 1> in;    // n + kTaps - 1
  View<const float, 1> taps;  // kTaps
  View<float, 1> out;         // n

  Filter(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void plain(const Filter& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void double_buffered(const Filter& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void four_stages(const Filter& p, StreamRef stream);

}  // namespace fathom::lab::async_prefetch
