// out = a b^T: a is m x k, b is n x k, out is m x n; bf16, row-major, sums in fp32. k and n are multiples of
// 8 (a row is then a whole number of 16-byte vectors, which TMA asks for). The layout of a linear layer: b
// holds weights, a row for each output.
#pragma once

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab {
struct CallMetrics;
}

namespace fathom::lab::matmul {

struct Gemm {
  int64_t m, n, k;
  View<const bf16, 2> a, b;
  View<char, 1> scratch;  // 32 MiB for cuBLASLt, or for tiles of partial sums
  View<bf16, 2> out;
  View<double, 2> times;  // [CTA, began or ended], ns: written by the schedules of labs/matmul:tail

  // The point has `size` (m = n = k), or `rows` and `columns` of out, or both as `shape`, and `depth`: k,
  // 2880 if there is none.
  Gemm(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i, int64_t j) const;
  // From `times`, where the variant has written them: how many multiprocessors were busy on average, and how
  // long the last CTA worked after the first had ended.
  void metrics(CallMetrics& metrics) const;
};

}  // namespace fathom::lab::matmul
