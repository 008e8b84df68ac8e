// Memory moves in sectors of 32 bytes, and DRAM often in pairs of them. A kernel that needs four of a
// struct's 16 floats fetches more than four.
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/rng.h"
#include "particles.h"

namespace fathom::lab::aos_soa_gpu {
namespace {

// Particles repeat with this period (no power of two, so that a wrong stride is detected), which makes
// refills as fast as memcpy.
constexpr int64_t kPeriod = 4093;

int64_t padded(int64_t n) { return (n + 63) / 64 * 64; }

// to[0, n) = from[0, period), repeated
void repeat(const float* from, int64_t period, float* to, int64_t n) {
  for (int64_t done = 0; done < n; done += period)
    std::memcpy(to + done, from, static_cast<size_t>(std::min(period, n - done)) * sizeof(float));
}

// The same particles in both layouts.
void make(int64_t n, float* to, uint64_t seed) {
  std::vector<float> aos(kPeriod * kFields), soa(kPeriod);
  fill_uniform(aos.data(), kPeriod * kFields, seed, -1, 1);
  repeat(aos.data(), kPeriod * kFields, to, n * kFields);
  to += n * kFields;
  for (int64_t field = kFields - kWanted; field < kFields; ++field, to += padded(n)) {
    for (int64_t i = 0; i < kPeriod; ++i) soa[i] = aos[i * kFields + field];
    repeat(soa.data(), kPeriod, to, padded(n));
  }
}

}  // namespace

KineticEnergy::KineticEnergy(const Point& at, Arena& arena)
    : particles(arena.input<float>(
          {at["n"] * kFields + kWanted * padded(at["n"])},
          generate<float>([n = at["n"]](float* to, int64_t, uint64_t seed) { make(n, to, seed); }))),
      aos(particles.data(), {at["n"], kFields}),
      soa(particles.data() + at["n"] * kFields, {kWanted, padded(at["n"])}),
      out(arena.output<float>({at["n"]})) {}

Cost KineticEnergy::cost() const {
  const int64_t n = out.extent(0);
  return {.read = kWanted * 4 * n, .written = out.bytes(), .flops = 7.0 * static_cast<double>(n)};
}

Sum KineticEnergy::expected(int64_t i) const {
  const double vx = aos(i, 12), vy = aos(i, 13), vz = aos(i, 14), mass = aos(i, 15);
  const double square = vx * vx + vy * vy + vz * vz;
  return {.value = 0.5 * mass * square, .magnitude = 0.5 * std::abs(mass) * square, .length = 4};
}

namespace {

const Experiment<KineticEnergy> kinetic_energy{
    .question = "What does a kernel that reads 4 of 16 fields pay for the other 12, in each layout?",
    .limit    = Limit::memory,
    // 1.7 GiB of structs, 432 MiB of arrays, 108 MiB of results.
    .axes     = {{"n", {27 << 20}}},
    .check_at = {{"n", {0, 1, 3, 31, 33, 63, 64, 65, 251, 255, 256, 257, 1023, 1024, 1025, 4099, 10007}}},
    .variants =
        {
            {.id         = "aos",
             .launch     = on_gpu(aos),
             .techniques = {},
             .idea       = "array of structs: four loads, each of another line for every second lane",
             .prediction = predict::share(0.29)},
            {.id         = "aos_vector",
             .launch     = on_gpu(aos_vector),
             .techniques = {"vectorization"},
             .idea       = "the four wanted fields in one load of 16 bytes: fewer requests, the same sectors",
             .prediction = predict::ratio(1.0)},
            {.id         = "soa",
             .launch     = on_gpu(soa),
             .techniques = {"layout_change", "coalescing"},
             .idea       = "struct of arrays: four streams, every byte used",
             .prediction = predict::ratio(3.2)},
            {.id         = "soa_vector",
             .launch     = on_gpu(soa_vector),
             .techniques = {"layout_change", "coalescing", "vectorization"},
             .idea       = "four particles a thread: 16 bytes an access on five streams",
             .prediction = predict::share_at_least(0.95)},
        },
    .backend = Backend::cuda,
    .group   = "aos_soa",
};
FATHOM_REGISTER(kinetic_energy);

}  // namespace
}  // namespace fathom::lab::aos_soa_gpu
