// The problem: out(r) = log sum_c exp(in(r, c)) for rows of bf16 logits: the basis of a cross-entropy and of
// a token's log-probability.
#pragma once

#include "core/dtype.h"
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

namespace fathom::lab::inline_ptx {

struct LogSumExp {
  View<const bf16, 2> in;
  View<float, 1> out;

  LogSumExp(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t r) const;
};

FATHOM_CUDA_LAUNCHER void plain(const LogSumExp& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void intrinsics(const LogSumExp& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void ptx(const LogSumExp& p, StreamRef stream);

}  // namespace fathom::lab::inline_ptx
