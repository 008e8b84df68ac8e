// out(i) = m(i) / 2 (vx(i)^2 + vy(i)^2 + vz(i)^2)                       n particles of 16 fp32 fields
//
// bytes   20 n: 16 n read + 4 n written. Here 36 n or 68 n: a sector of 32 bytes of each struct, or both
//         where DRAM reads them in pairs
// flops   7 n
// limit   DRAM bandwidth. H200: 27 Mi particles move 0.57 GB, 0.14 ms at 3.98 TB/s
// idea    the four fields are adjacent, at a multiple of 16 bytes: one load for all four. A quarter of the
//         requests; the same sectors
#include "cuda/check.h"
#include "particles.h"

namespace fathom::lab::aos_soa_gpu {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    energy_kernel(const Particle* __restrict__ particles, float* __restrict__ out, int n) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const float4 p = *reinterpret_cast<const float4*>(&particles[i].vx);
  out[i]         = 0.5f * p.w * (p.x * p.x + p.y * p.y + p.z * p.z);
}

}  // namespace

void aos_vector(const KineticEnergy& p, StreamRef stream) {
  const int64_t n = p.out.extent(0);
  FATHOM_EXPECT(n < int64_t{1} << 31, "particles are counted in 32 bits");
  if (n == 0) return;
  energy_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(
      reinterpret_cast<const Particle*>(p.aos.data()), p.out.data(), static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::aos_soa_gpu
