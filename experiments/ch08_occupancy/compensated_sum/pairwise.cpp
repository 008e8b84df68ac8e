// out = sum of x(i)                       n elements, fp32
//
// bytes   4 n
// flops   n
// limit   bandwidth of the level that holds the array
// idea    a tree: the sum of an array is the sum of its halves. Blocks of 4096 are its leaves, each in 64
//         running sums, so that an element passes through 64 + 6 + log2(n / 4096) additions.
#include "array.h"
#include "vector_sum.h"

namespace fathom::lab::compensated_sum {
namespace {

constexpr int64_t kBlock = 4096;

float tree(const float* x, int64_t n) {
  if (n <= kBlock) return vector_sum(x, n);
  const int64_t half = (n / 2 + kBlock - 1) / kBlock * kBlock;  // whole blocks
  return tree(x, half) + tree(x + half, n - half);
}

}  // namespace

void pairwise(const Array& p, Context&) { p.out(0) = tree(p.x.data(), p.x.extent(0)); }

}  // namespace fathom::lab::compensated_sum
