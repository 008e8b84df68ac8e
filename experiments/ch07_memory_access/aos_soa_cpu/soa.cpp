// out(i) = m(i) / 2 (vx(i)^2 + vy(i)^2 + vz(i)^2)                       n particles of 16 fp32 fields
//
// bytes   20 n: 16 n read + 4 n written
// flops   7 n
// limit   memory bandwidth
// idea    an array for each field: the 12 unused fields never move, and neighbours in memory are
//         neighbours in a vector, so the compiler needs no shuffles
#include "particles.h"

namespace fathom::lab::aos_soa_cpu {

void soa(const KineticEnergy& p, Context&) {
  const int64_t n   = p.out.extent(0);
  const float* vx   = p.soa.data() + kVx * n;
  const float* vy   = p.soa.data() + kVy * n;
  const float* vz   = p.soa.data() + kVz * n;
  const float* mass = p.soa.data() + kMass * n;
  float* out        = p.out.data();
  for (int64_t i = 0; i < n; ++i) out[i] = 0.5f * mass[i] * (vx[i] * vx[i] + vy[i] * vy[i] + vz[i] * vz[i]);
}

}  // namespace fathom::lab::aos_soa_cpu
