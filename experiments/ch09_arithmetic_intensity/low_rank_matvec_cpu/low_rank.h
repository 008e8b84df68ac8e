// The problem: y = W x for an n x n matrix of rank r, fp32, which is there as one matrix, W, and as two, U
// (n x r) and V (r x n), with W = U V.
//
// So that a large W costs little to make, all three are Kronecker products of small tables:
//   U = A (x) B,  V = C (x) D,  W = (A C) (x) (B D)
// with B of 64 x q and D of q x 64, q = min(r, 64), cut to n rows and columns. Each is full of different
// numbers; no variant knows of it.
#pragma once

#include <algorithm>

#include "lab/problem.h"

namespace fathom::lab::low_rank_matvec_cpu {

struct LowRank {
  int64_t n, rank;
  View<const float, 2> a, b, c, d;  // the tables
  View<const float, 2> u, v, w;
  View<const float, 1> x;
  View<float, 1> between;  // workspace: r numbers
  View<float, 1> out;      // n

  LowRank(const Point& at, Arena& arena);

  // One of the two forms, the smaller one.
  Cost cost() const {
    const int64_t numbers = std::min(w.size(), u.size() + v.size());
    return {.read        = 4 * (numbers + n),
            .written     = out.bytes(),
            .flops       = 2.0 * static_cast<double>(numbers),
            .working_set = w.bytes()};  // calls are cold: DRAM is the limit for small factors too
  }
  // U (V x) in double. A float of W stands for the sum over k, so its products have both lengths.
  void check(Checker& checker) const;
};

void multiplied_out(const LowRank&, Context&);
void factored(const LowRank&, Context&);
// Opens the library; the returned function is timed.
Launch<LowRank> openblas_factored(const LowRank&, Context&);

}  // namespace fathom::lab::low_rank_matvec_cpu
