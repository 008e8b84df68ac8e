#include "experiments/labs/matmul/cutlass.h"

#include "lab/problem.h"

namespace fathom::lab::matmul {

std::function<void(const Gemm&, StreamRef)> cutlass(const Gemm&, StreamRef) {
  if (!cutlass_gemm)
    throw Unavailable("needs_library",
                      "CUTLASS, whose headers this build had not: cmake -DFATHOM_CUTLASS_DIR=<its folder>");
  return cutlass_gemm;
}

}  // namespace fathom::lab::matmul
