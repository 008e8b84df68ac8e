// The problem: n numbers in the host's memory, and the device wants them divided by the largest of their
// magnitudes:
//   out(i) = in(i) / max over j of |in(j)|          (0 where all are 0)
// That takes two walks over the numbers. in is page-locked, so that the device can also read it where it
// lies.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Point;
class Checker;
struct Cost;
}  // namespace fathom::lab

namespace fathom::lab::zero_copy {

inline constexpr int kMostBlocks = 528;  // of a walk: 4 for each of 132 multiprocessors

struct Normalization {
  View<const float, 1> in;    // on the host
  View<float, 1> copy;        // workspace on the device, as large as in
  View<float, 1> largest_of;  // workspace: the largest magnitude that each block of the first walk saw
  View<float, 1> out;

  Normalization(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void copy_then_use(const Normalization& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void mapped(const Normalization& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void by_size(const Normalization& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void kept(const Normalization& p, StreamRef stream);

}  // namespace fathom::lab::zero_copy
