// The problem: the kinetic energy of each of n particles, out(i) = m / 2 (vx^2 + vy^2 + vz^2): 4 of a
// particle's 16 fields. The same particles lie in memory three times, once in each layout; a variant reads
// one.
#pragma once

#include "lab/problem.h"

namespace fathom::lab::aos_soa_cpu {

constexpr int64_t kFields = 16;
constexpr int64_t kBlock  = 16;  // particles of an AoSoA block: one cache line of each field

// One cache line. Only the last four are read here; a simulation needs the others at other times.
struct Particle {
  float x, y, z, radius, fx, fy, fz, charge, sx, sy, sz, temperature;
  float vx, vy, vz, mass;
};
static_assert(sizeof(Particle) == kFields * sizeof(float));
constexpr int64_t kVx = 12, kVy = 13, kVz = 14, kMass = 15;  // where these four are among the fields

struct KineticEnergy {
  View<const float, 2> aos;    // (particle, field)
  View<const float, 2> soa;    // (field, particle)
  View<const float, 3> aosoa;  // (block, field, particle in block); the last block is padded with zeros
  View<float, 1> out;

  KineticEnergy(const Point& at, Arena& arena)
      : aos(arena.input<float>({at["n"], kFields}, Uniform{-1, 1})),
        soa(arena.input<float>({kFields, at["n"]}, generate<float>([aos = aos](float* to, int64_t, uint64_t) {
                                 const int64_t n = aos.extent(0);
                                 for (int64_t i = 0; i < n; ++i)
                                   for (int64_t f = 0; f < kFields; ++f) to[f * n + i] = aos(i, f);
                               }))),
        aosoa(arena.input<float>({(at["n"] + kBlock - 1) / kBlock, kFields, kBlock},
                                 generate<float>([aos = aos](float* to, int64_t elements, uint64_t) {
                                   for (int64_t e = 0; e < elements; ++e) {
                                     const int64_t i = e / (kFields * kBlock) * kBlock + e % kBlock;
                                     to[e] = i < aos.extent(0) ? aos(i, e / kBlock % kFields) : 0.0f;
                                   }
                                 }))),
        out(arena.output<float>({at["n"]})) {}

  Cost cost() const {
    const int64_t n = out.extent(0);
    return {.read = 4 * 4 * n, .written = out.bytes(), .flops = 7.0 * static_cast<double>(n)};
  }
  Sum expected(int64_t i) const {
    const double vx = aos(i, kVx), vy = aos(i, kVy), vz = aos(i, kVz), mass = aos(i, kMass);
    const double energy = 0.5 * mass * (vx * vx + vy * vy + vz * vz);
    return {.value = energy, .magnitude = energy < 0 ? -energy : energy, .length = 4};
  }
};

void aos(const KineticEnergy& p, Context& context);
void soa(const KineticEnergy& p, Context& context);
void aosoa(const KineticEnergy& p, Context& context);

}  // namespace fathom::lab::aos_soa_cpu
