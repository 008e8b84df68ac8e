// Bilinear algorithms for small matrix products, and their exact verification.
//
// A scheme <n, m, p; r> computes C = A B, A of n x m and B of m x p, with r products of sums:
//   P_t = (sum_ij a_t(i, j) A(i, j)) (sum_jk b_t(j, k) B(j, k)),   C(i, k) = sum_t c_t(i, k) P_t
// It holds for matrices of any ring, so also where the entries are blocks, if and only if the r outer
// products a_t (x) b_t (x) c_t add up to the tensor of the matrix product: (nm)(mp)(np) equations in integers
// (Brent, "Algorithms for matrix multiplication", Stanford, 1970). Strassen's is <2, 2, 2; 7> ("Gaussian
// elimination is not optimal", Numerische Mathematik 13, 1969).
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"

namespace fathom::search {

// The shape of a product: n x m times m x p.
struct ProductShape {
  int n = 0, m = 0, p = 0;
  int a_size() const { return n * m; }
  int b_size() const { return m * p; }
  int c_size() const { return n * p; }
};

// One product: a coefficient for each entry of A, B and C, row-major.
struct BilinearTerm {
  std::vector<int> a, b, c;
};

struct BilinearScheme {
  ProductShape shape;
  std::vector<BilinearTerm> terms;
  int rank() const { return static_cast<int>(terms.size()); }
};

// n m p products of single entries. Precondition: n, m, p >= 1.
BilinearScheme schoolbook(ProductShape shape);

// Every equation, in int64. The error names what is malformed (a shape, a length, a coefficient beyond 2^15),
// or the first coefficient of the tensor that is wrong: "A(0,1) B(1,0) has 2 in C(0,0), and not 1".
Status verify(const BilinearScheme& scheme);

// Additions and subtractions of entries (or blocks) if no sum is used twice.
int additions(const BilinearScheme& scheme);

// The largest sum over t of |c_t(i, k)| |a_t|_1 |b_t|_1 of all (i, k): how many signed products A(.,.) B(.,.)
// stand in one entry of C before they cancel. m for the schoolbook, 12 for Strassen's. The error bound grows
// by growth / m with each level of a recursion (Ballard, Benson, Druinsky, Lipshitz, Schwartz, "Improving the
// numerical stability of fast matrix multiplication", SIAM J. Matrix Anal. Appl. 37(4), 2016).
int64_t growth(const BilinearScheme& scheme);

}  // namespace fathom::search
