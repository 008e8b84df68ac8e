// The problem: out(t, c) = x(t, c) gain(c) + offset(c), a scale and a shift for each channel, fp32.
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

namespace fathom::lab::read_only_path {

struct Affine {
  View<const float, 2> x;  // (token, channel), fewer than 2^31 elements
  View<const float, 1> gain, offset;
  View<float, 2> out;

  Affine(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t t, int64_t c) const;
};

FATHOM_CUDA_LAUNCHER void plain(const Affine& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void ldg(const Affine& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void restricted(const Affine& p, StreamRef stream);

}  // namespace fathom::lab::read_only_path
