// The problem: out(v) = how many of n bytes are v, for 256 values.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Checker;
class Point;
struct Cost;
}  // namespace fathom::lab

namespace fathom::lab::histogram {

inline constexpr int kBins = 256;

struct Histogram {
  View<const uint8_t, 1> in;
  View<uint32_t, 1> out;
  View<uint32_t, 1> scratch;  // workspace of the library

  Histogram(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void per_block(const Histogram& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void global_atomics(const Histogram& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void vectorized(const Histogram& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void per_warp(const Histogram& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void per_thread(const Histogram& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void cub_histogram(const Histogram& p, StreamRef stream);

}  // namespace fathom::lab::histogram
