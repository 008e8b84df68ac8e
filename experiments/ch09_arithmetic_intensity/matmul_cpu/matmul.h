// C = A B for square row-major fp32 matrices: the problem every variant of matmul_cpu solves.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/thread_pool.h"
#include "core/view.h"
#include "lab/problem.h"

namespace fathom::lab::matmul_cpu {

// Cache blocks of register_blocked, packed and threads, in elements; the names are those of Goto and van de
// Geijn, Anatomy of High-Performance Matrix Multiplication, ACM TOMS 34(3), 2008.
inline constexpr int64_t kKc  = 384;   // depth: a micro-panel of B, kKc x 16, is 24 KiB and stays in L1
inline constexpr int64_t kMc  = 192;   // rows of A in a block: kMc x kKc is 288 KiB and stays in L2
inline constexpr int64_t kNc  = 4096;  // columns of B in a panel: kKc x kNc is 6 MiB and stays in L3
inline constexpr int64_t kPad = 64;    // no register tile has more rows or columns

// Rows of A in one block: about kMc, whole register tiles, equally many blocks for each thread.
inline int64_t row_block(int64_t n, int threads, int64_t tile_rows) {
  const int64_t blocks = std::max((n + kMc * threads - 1) / (kMc * threads), int64_t{1}) * threads;
  const int64_t tiles  = (n + blocks * tile_rows - 1) / (blocks * tile_rows);
  return std::max(tiles, int64_t{1}) * tile_rows;
}

struct MatMul {
  int64_t n;
  View<const float, 2> a, b;
  View<float, 2> out;
  View<float, 1> packed_a;  // a block for each thread: no more than cover all rows
  View<float, 1> packed_b;  // one panel

  MatMul(const Point& at, Arena& arena)
      : n(at["n"]),
        a(arena.input<float>({n, n}, Uniform{-1, 1})),
        b(arena.input<float>({n, n}, Uniform{-1, 1})),
        out(arena.output<float>({n, n})),
        packed_a(arena.workspace<float>({(n + kMc + kPad) * std::min(n, kKc)})),
        packed_b(arena.workspace<float>({(std::min(n, kNc) + kPad) * std::min(n, kKc)})) {}

  Cost cost() const {
    return {.read = a.bytes() + b.bytes(), .written = out.bytes(), .flops = 2.0 * n * n * n};
  }

  Sum expected(int64_t i, int64_t j) const {
    Sum sum{.length = n};
    for (int64_t k = 0; k < n; ++k) {
      const double product = static_cast<double>(a(i, k)) * b(k, j);
      sum.value += product;
      sum.magnitude += std::abs(product);
    }
    return sum;
  }
};

void naive(const MatMul&, Context&);
void loop_order(const MatMul&, Context&);
void tiled(const MatMul&, Context&);
void register_blocked(const MatMul&, Context&);
void packed(const MatMul&, Context&);
void threads(const MatMul&, Context&);
// Open the library; the returned functions are timed. As many threads as context.pool.
Launch<MatMul> openblas(const MatMul&, Context&);
Launch<MatMul> onednn(const MatMul&, Context&);

}  // namespace fathom::lab::matmul_cpu
