// y = four recursive sections of x, over time        n channels side by side, m samples, fp32
//
// bytes   8 m n + 80 n   x read, y written, coefficients read once
// flops   36 m n
// limit   DRAM bandwidth. H200: n = 405504, m = 160 moves 551 MB, 0.138 ms at 4 TB/s
// idea    baseline: a thread for each channel, its 20 coefficients and 8 numbers of state in registers.
//         Without __launch_bounds__'s second number the compiler spends 48 registers on a loop that it
//         unrolls by four: two blocks fit on a multiprocessor, 32 of 64 warps.
#include "cuda/check.h"
#include "filter_bank.h"
#include "sections.cuh"

namespace fathom::lab::launch_bounds {
namespace {

constexpr int kThreads = 512;

__global__ void filter_kernel(const float* x, const float* coefficient, float* y, int m, int n) {
  const int c = blockIdx.x * kThreads + threadIdx.x;
  if (c >= n) return;
  Sections sections(coefficient + c, n);
  x += c;
  y += c;
  for (; m > 0; --m) {
    *y = sections.step(*x);
    x += n;
    y += n;
  }
}

}  // namespace

void unbounded(const FilterBank& p, StreamRef stream) {
  const int64_t m = p.in.extent(0), n = p.in.extent(1);
  if (m * n == 0) return;
  FATHOM_EXPECT(m * n <= 1 << 30 && n <= 1 << 26, "32-bit indices");
  filter_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(
      p.in.data(), p.coefficient.data(), p.out.data(), static_cast<int>(m), static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::launch_bounds
