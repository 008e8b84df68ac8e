// out(i) = m(i) / 2 (vx(i)^2 + vy(i)^2 + vz(i)^2)                       n particles of 16 fp32 fields
//
// bytes   20 n useful: 16 n read + 4 n written. This layout reads 64 n.
// flops   7 n
// limit   memory bandwidth
// idea    baseline: a struct for each particle, as usually declared
#include "particles.h"

namespace fathom::lab::aos_soa_cpu {

// Scalar on purpose, because it is faster: g++ 12 vectorizes this loop by shuffling all 16 fields of 8
// particles.
__attribute__((optimize("no-tree-vectorize"))) void aos(const KineticEnergy& p, Context&) {
  const int64_t n           = p.out.extent(0);
  const Particle* particles = reinterpret_cast<const Particle*>(p.aos.data());
  float* out                = p.out.data();
  for (int64_t i = 0; i < n; ++i) {
    const Particle& q = particles[i];
    out[i]            = 0.5f * q.mass * (q.vx * q.vx + q.vy * q.vy + q.vz * q.vz);
  }
}

}  // namespace fathom::lab::aos_soa_cpu
