// out(i, j) = sum_k a(i, k) b(k, j)          n x n, fp32
//
// bytes   12 n^2   plus 16 n^2 for the packed copies, as in packed
// flops   2 n^3
// limit   FMA peak of all cores
// idea    two loops have independent iterations, which all threads share: columns when B is packed, row
//         blocks when A is packed and multiplied. All use one panel of B, so there is a barrier after each
//         loop
#include <algorithm>

#include "core/thread_pool.h"
#include "matmul.h"
#include "panels.h"

namespace fathom::lab::matmul_cpu {

void threads(const MatMul& p, Context& context) {
  const auto& [rows, columns, pack_a, pack_b, multiply] = panels();
  const int64_t n = p.n, mc = row_block(n, context.pool.threads(), rows);
  for (int64_t jc = 0; jc < n; jc += kNc) {
    const int64_t nc = std::min(kNc, n - jc);
    for (int64_t pc = 0; pc < n; pc += kKc) {
      const int64_t kc = std::min(kKc, n - pc);
      context.pool.parallel_for(nc, columns, [&, jc = jc, pc = pc](int64_t begin, int64_t end) {
        pack_b(&p.b(pc, jc + begin), n, kc, end - begin, p.packed_b.data() + begin * kc);
      });
      context.pool.parallel_for(n, mc, [&](int64_t begin, int64_t end) {
        for (int64_t ic = begin; ic < end; ic += mc) {
          const int64_t m = std::min(mc, n - ic);
          float* block    = p.packed_a.data() + begin * kc;
          pack_a(&p.a(ic, pc), n, m, kc, block);
          multiply(m, nc, kc, block, p.packed_b.data(), &p.out(ic, jc), n, pc > 0);
        }
      });
    }
  }
}

}  // namespace fathom::lab::matmul_cpu
