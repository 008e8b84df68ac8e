// out(i) = m(i) / 2 (vx(i)^2 + vy(i)^2 + vz(i)^2)                       n particles of 16 fp32 fields
//
// bytes   20 n: 16 n read + 4 n written
// flops   7 n
// limit   memory bandwidth
// idea    blocks of 16 particles, in a block one line for each field: whole lines and vectors as in soa, but
//         all of a particle within 1 KiB, for the loops that want many of its fields or particles in any
//         order
#include "particles.h"

namespace fathom::lab::aos_soa_cpu {
namespace {

inline void energies(const float* block, int64_t count, float* out) {
  const float* vx   = block + kVx * kBlock;
  const float* vy   = block + kVy * kBlock;
  const float* vz   = block + kVz * kBlock;
  const float* mass = block + kMass * kBlock;
  for (int64_t i = 0; i < count; ++i)
    out[i] = 0.5f * mass[i] * (vx[i] * vx[i] + vy[i] * vy[i] + vz[i] * vz[i]);
}

}  // namespace

void aosoa(const KineticEnergy& p, Context&) {
  const int64_t n     = p.out.extent(0);
  const float* block  = p.aosoa.data();
  float* out          = p.out.data();
  const int64_t whole = n / kBlock;
  for (int64_t b = 0; b < whole; ++b, block += kFields * kBlock) energies(block, kBlock, out + b * kBlock);
  energies(block, n % kBlock, out + whole * kBlock);
}

}  // namespace fathom::lab::aos_soa_cpu
