#include "experiments/labs/matmul/gemm_fp32.h"

#include <cmath>

#include "lab/problem.h"

namespace fathom::lab::matmul {

GemmFp32::GemmFp32(const Point& at, Arena& arena)
    : m(at["size"]),
      n(m),
      k(m),
      a(arena.input<float>({m, k}, Normal{})),
      b(arena.input<float>({n, k}, Normal{})),
      scratch(arena.workspace<char>({int64_t{32} << 20})),
      out(arena.output<float>({m, n})) {
  FATHOM_EXPECT(m % 4 == 0,
                "the size is a multiple of 4: a row is a whole number of 16-byte vectors (-a size=4096)");
}

Cost GemmFp32::cost() const {
  return {.read    = a.bytes() + b.bytes(),
          .written = out.bytes(),
          .flops   = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k)};
}

Sum GemmFp32::expected(int64_t i, int64_t j) const {
  Sum sum{.length = k};
  for (int64_t l = 0; l < k; ++l) {
    const double product = static_cast<double>(a(i, l)) * b(j, l);
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

// tf32's error, not the sum's: each of the two factors of a product has 11 bits of significand, as many as
// fp16. The accumulation in fp32 adds less than a hundredth of that.
Sum GemmTf32::expected(int64_t i, int64_t j) const {
  Sum sum        = GemmFp32::expected(i, j);
  sum.length     = 2;
  sum.accumulate = DType::fp16;
  return sum;
}

}  // namespace fathom::lab::matmul
