// The problem: the kinetic energy of each of n particles, out(i) = m / 2 (vx^2 + vy^2 + vz^2): 4 of a
// particle's 16 fields. The same particles lie in memory twice, once in each layout; a variant reads one.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Point;
struct Cost;
struct Sum;
}  // namespace fathom::lab

namespace fathom::lab::aos_soa_gpu {

// Two sectors of 32 bytes. Only the last four are read here; a simulation needs the others at other times.
struct Particle {
  float x, y, z, radius, fx, fy, fz, charge, sx, sy, sz, temperature;
  float vx, vy, vz, mass;
};
constexpr int kFields = sizeof(Particle) / sizeof(float);
constexpr int kWanted = 4;  // vx, vy, vz, mass: the last ones

struct KineticEnergy {
  View<const float, 1> particles;  // storage of the next two views
  View<const float, 2> aos;        // (particle, field)
  // (wanted field, particle), rows padded to a multiple of 64; the other fields are never read.
  View<const float, 2> soa;
  View<float, 1> out;

  KineticEnergy(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void aos(const KineticEnergy& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void aos_vector(const KineticEnergy& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void soa(const KineticEnergy& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void soa_vector(const KineticEnergy& p, StreamRef stream);

}  // namespace fathom::lab::aos_soa_gpu
