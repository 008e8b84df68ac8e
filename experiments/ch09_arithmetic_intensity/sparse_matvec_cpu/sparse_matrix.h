// The problem: y = A x for an n x n matrix most of whose places are zero, fp32. The same matrix is there in
// four forms; a variant reads one of them.
//
// The pattern is part of the problem. `scattered`: so many places, each as likely as any other. `blocks`: so
// many blocks of 8 x 8 places, each as likely as any other, and full. Either way the number of nonzeros is
// given by the density, and rows differ in length.
#pragma once

#include <algorithm>
#include <cmath>

#include "lab/problem.h"

namespace fathom::lab::sparse_matvec_cpu {

inline constexpr int64_t kBlock = 8;  // rows and columns of a block; the fp32 numbers of a vector of AVX2
inline constexpr int64_t kSpare = 8;  // numbers behind the last nonzero, so that a vector may begin at it

struct SparseMatrix {
  int64_t n;
  int64_t cell;   // 1 or kBlock: how many places of a row stand or fall together
  int64_t cells;  // that are not zero
  // A bit for each place, rows of whole bytes. All other forms are made from it.
  View<const uint8_t, 2> bits;
  // CSR: row i has the nonzeros row_begin(i) to row_begin(i + 1), by ascending column.
  View<const int32_t, 1> row_begin, column;
  View<const float, 1> value;
  View<const float, 2> dense;
  // BSR: block row i has the blocks block_begin(i) to block_begin(i + 1), each stored column after column,
  // zeros included.
  View<const int32_t, 1> block_begin, block_column;
  View<const float, 2> block;
  View<const float, 1> x;  // whole blocks: up to 7 numbers behind n meet stored zeros only
  View<float, 1> out;      // n

  SparseMatrix(const Point& at, Arena& arena);

  int64_t block_rows() const { return bits.extent(1); }
  // Beyond these numbers nothing is stored; blocks that reach over the edge of the matrix leave some room.
  int64_t most_nonzeros() const { return cells * cell * cell; }
  int64_t most_blocks() const { return cell == 1 ? std::min(cells, block_rows() * block_rows()) : cells; }

  // Each nonzero once, and the fewest bytes that tell the pattern: log2 of the number of patterns.
  Cost cost() const;
  // By the definition, from the dense form.
  Sum expected(int64_t i) const {
    Sum sum{.length = 0};
    for (int64_t j = 0; j < n; ++j) {
      const double product = static_cast<double>(dense(i, j)) * x(j);
      sum.value += product;
      sum.magnitude += std::abs(product);
      sum.length += dense(i, j) != 0;
    }
    return sum;
  }
};

void dense(const SparseMatrix&, Context&);
void csr(const SparseMatrix&, Context&);
void csr_chains(const SparseMatrix&, Context&);
void csr_gather(const SparseMatrix&, Context&);
void bitmap(const SparseMatrix&, Context&);
void bsr(const SparseMatrix&, Context&);
// Opens the library; the returned function is timed.
Launch<SparseMatrix> openblas(const SparseMatrix&, Context&);

}  // namespace fathom::lab::sparse_matvec_cpu
