// out = inclusive scan of x                     n elements, fp32
//
// bytes   8 n      and on two threads 13.3 n move: as in simd, and the middle third is read twice
// flops   4 n executed and 1/3 n for the sums
// limit   memory bandwidth of all cores
// idea    one part more than threads. First the first part is scanned and the others but the last are added
//         up; then each of these knows what stands before it, and is scanned. In a time of two parts p
//         threads scan p + 1: (p + 1) / 2 is also the most that any scan by an associative operation can gain
//         (M. Snir, Depth-Size Trade-Offs for Parallel Prefix Computation, J. Algorithms 7, 1986).
#include <algorithm>
#include <array>

#include "core/expect.h"
#include "core/thread_pool.h"
#include "scan.h"
#include "scan_piece.h"

namespace fathom::lab::prefix_scan_cpu {

void two_pass(const Scan& p, Context& context) {
  constexpr int64_t kLine = 16, kMostThreads = 1024;
  const int64_t n = p.x.size(), threads = context.pool.threads();
  FATHOM_EXPECT(threads <= kMostThreads, "more threads than two_pass has room for");

  // Part t of 0 .. threads begins at a line's border.
  const int64_t lines = (n + kLine - 1) / kLine;
  const auto begin    = [&](int64_t t) { return std::min(lines * t / (threads + 1) * kLine, n); };
  const auto scan     = [&](int64_t t, float before) {
    return scan_piece<false>(p.x.data() + begin(t), p.out.data() + begin(t), begin(t + 1) - begin(t), before);
  };

  std::array<float, kMostThreads> sums;
  context.pool.run_shares([&](int64_t t) {
    sums[t] = t == 0 ? scan(0, 0) : reduce_piece(p.x.data() + begin(t), begin(t + 1) - begin(t));
  });
  for (int64_t t = 1; t < threads; ++t) sums[t] += sums[t - 1];
  // A thread scans the part that it has added up, which its caches may still hold.
  context.pool.run_shares([&](int64_t t) {
    const int64_t part = t == 0 ? threads : t;
    scan(part, sums[part - 1]);
  });
}

}  // namespace fathom::lab::prefix_scan_cpu
