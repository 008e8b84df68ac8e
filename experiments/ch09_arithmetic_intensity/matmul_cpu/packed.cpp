// out(i, j) = sum_k a(i, k) b(k, j)          n x n, fp32
//
// bytes   12 n^2   plus 16 n^2 to write and read the packed copies; out passes n / kKc times
// flops   2 n^3
// limit   FMA peak. One core of Zen 3 (2 x 8 FMA a cycle) at 3.2 GHz: n = 1024 is 2.1 GFLOP, 21 ms
// idea    copy blocks of a and b into the order in which the micro-kernel reads them: every load then hits L1
//         or a line of L2 fetched ahead, whatever n is (Goto and van de Geijn, Anatomy of High-Performance
//         Matrix Multiplication, ACM TOMS 34(3), 2008; the loops carry their names)
#include <algorithm>

#include "matmul.h"
#include "panels.h"

namespace fathom::lab::matmul_cpu {

void packed(const MatMul& p, Context&) {
  const auto& [rows, columns, pack_a, pack_b, multiply] = panels();
  const int64_t n = p.n, mc = row_block(n, 1, rows);
  for (int64_t jc = 0; jc < n; jc += kNc) {
    const int64_t nc = std::min(kNc, n - jc);
    for (int64_t pc = 0; pc < n; pc += kKc) {
      const int64_t kc = std::min(kKc, n - pc);
      pack_b(&p.b(pc, jc), n, kc, nc, p.packed_b.data());
      for (int64_t ic = 0; ic < n; ic += mc) {
        const int64_t m = std::min(mc, n - ic);
        pack_a(&p.a(ic, pc), n, m, kc, p.packed_a.data());
        multiply(m, nc, kc, p.packed_a.data(), p.packed_b.data(), &p.out(ic, jc), n, pc > 0);
      }
    }
  }
}

}  // namespace fathom::lab::matmul_cpu
