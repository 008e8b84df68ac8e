// The problem: out = A B C, fp32, row-major, with sizes p x q, q x r and r x s. Both orders of the two
// products give the same matrix:
//   (A B) C  takes  p q r + p r s  multiply-adds
//   A (B C)  takes  q r s + p q s
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "core/view.h"
#include "lab/problem.h"

namespace fathom::lab::matrix_chain_cpu {

// The four extents of the text "10x1000x5x500".
struct Sizes {
  int64_t p, q, r, s;
  explicit Sizes(const std::string& text);
};

struct Chain {
  Sizes sizes;
  View<const float, 2> a, b, c;
  View<float, 2> ab, bc;  // workspace: the product between, in either order
  View<float, 2> out;

  Chain(const Point& at, Arena& arena)
      : sizes(at.text("chain")),
        a(arena.input<float>({sizes.p, sizes.q}, Uniform{-1, 1})),
        b(arena.input<float>({sizes.q, sizes.r}, Uniform{-1, 1})),
        c(arena.input<float>({sizes.r, sizes.s}, Uniform{-1, 1})),
        ab(arena.workspace<float>({sizes.p, sizes.r})),
        bc(arena.workspace<float>({sizes.q, sizes.s})),
        out(arena.output<float>({sizes.p, sizes.s})) {}

  // Of the cheaper order.
  Cost cost() const {
    const auto [p, q, r, s] = sizes;
    return {.read    = a.bytes() + b.bytes() + c.bytes(),
            .written = out.bytes(),
            .flops   = 2.0 * static_cast<double>(std::min(p * q * r + p * r * s, q * r * s + p * q * s))};
  }
  // The double sum of the definition, in neither order.
  Sum expected(int64_t i, int64_t l) const {
    Sum sum{.length = sizes.q + sizes.r};
    for (int64_t j = 0; j < sizes.q; ++j)
      for (int64_t k = 0; k < sizes.r; ++k) {
        const double product = static_cast<double>(a(i, j)) * b(j, k) * c(k, l);
        sum.value += product;
        sum.magnitude += std::abs(product);
      }
    return sum;
  }
};

void left_first(const Chain&, Context&);
void right_first(const Chain&, Context&);
// Opens the library; the returned function is timed.
Launch<Chain> openblas_left_first(const Chain&, Context&);

}  // namespace fathom::lab::matrix_chain_cpu
