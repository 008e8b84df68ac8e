// The problem: out(r, c) = exp(in(r, c) - max_c in(r, c)) / sum_c exp(in(r, c) - max_c in(r, c)), row by row,
// bf16 in and out, everything between in fp32.
#pragma once

#include <functional>

#include "core/dtype.h"
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

namespace fathom::lab::online_softmax_gpu {

struct Softmax {
  View<const bf16, 2> in;
  View<bf16, 2> out;

  Softmax(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void three_pass(const Softmax& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void online(const Softmax& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void registers(const Softmax& p, StreamRef stream);
// Opens cuDNN and makes a handle; the returned call is timed.
FATHOM_CUDA_LAUNCHER std::function<void(const Softmax&, StreamRef)> cudnn_softmax(const Softmax& p,
                                                                                  StreamRef);

}  // namespace fathom::lab::online_softmax_gpu
