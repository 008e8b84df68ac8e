// The three steps of a packed matrix product, for the widest vectors this CPU has. A packed block is a row of
// micro-panels: `rows` x depth of A stored k by k, or depth x `columns` of B stored k by k, zeros beyond the
// edge, so that the micro-kernel reads both straight through.
#pragma once

#include <cstdint>

namespace fathom::lab::matmul_cpu {

struct Panels {
  int64_t rows, columns;  // of the register tile

  // a is m x k with rows a_row apart; packed holds m, rounded up to `rows`, times k.
  void (*pack_a)(const float* a, int64_t a_row, int64_t m, int64_t k, float* packed);
  // b is k x n with rows b_row apart; packed holds k times n, rounded up to `columns`.
  void (*pack_b)(const float* b, int64_t b_row, int64_t k, int64_t n, float* packed);
  // c (m x n) = [c +] A B, both packed.
  void (*multiply)(int64_t m, int64_t n, int64_t k, const float* packed_a, const float* packed_b, float* c,
                   int64_t c_row, bool add);
};

const Panels& panels();

}  // namespace fathom::lab::matmul_cpu
