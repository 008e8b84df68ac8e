// out(i) = m(i) / 2 (vx(i)^2 + vy(i)^2 + vz(i)^2)                       n particles of 16 fp32 fields
//
// bytes   20 n: 16 n read + 4 n written. Here 36 n or 68 n: a sector of 32 bytes of each struct, or both
//         where DRAM reads them in pairs
// flops   7 n
// limit   DRAM bandwidth. H200: 27 Mi particles move 0.57 GB, 0.14 ms at 3.98 TB/s
// idea    baseline: a struct for each particle, as the host's code has it. Lanes are 64 bytes apart, and
//         each of the four loads of a warp touches 32 sectors; all but the first find theirs in L1
#include "cuda/check.h"
#include "particles.h"

namespace fathom::lab::aos_soa_gpu {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    energy_kernel(const Particle* __restrict__ particles, float* __restrict__ out, int n) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const Particle& p = particles[i];
  out[i]            = 0.5f * p.mass * (p.vx * p.vx + p.vy * p.vy + p.vz * p.vz);
}

}  // namespace

void aos(const KineticEnergy& p, StreamRef stream) {
  const int64_t n = p.out.extent(0);
  FATHOM_EXPECT(n < int64_t{1} << 31, "particles are counted in 32 bits");
  if (n == 0) return;
  energy_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(
      reinterpret_cast<const Particle*>(p.aos.data()), p.out.data(), static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::aos_soa_gpu
