#include "book/profile_model.h"

#include "book/noise_model.h"

namespace fathom::book {
namespace {

constexpr double kNormal = 1.96;

// SplitMix64 (Steele, Lea, Flood, 2014).
double next_uniform(uint64_t& state) {
  uint64_t z = state += 0x9E3779B97F4A7C15;
  z          = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z          = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

int32_t part_at(const Program& program, double place) {
  int32_t part = 0;
  for (double end = program.share[0]; part + 1 < program.parts && place >= end; end += program.share[part])
    ++part;
  return part;
}

}  // namespace

void profile(const Program& program, Timer timer, int32_t samples, uint64_t seed,
             int32_t counts[kMostParts]) {
  for (int32_t i = 0; i < kMostParts; ++i) counts[i] = 0;
  uint64_t state     = seed;
  const double start = next_uniform(state);
  for (int32_t k = 0; k < samples; ++k) {
    const double at = timer == Timer::periodic ? start + k / program.round : next_uniform(state);
    ++counts[part_at(program, at - static_cast<double>(static_cast<int64_t>(at)))];
  }
}

Scatter scatter(const Program& program, Timer timer, int32_t samples, int32_t part, uint64_t seed,
                int32_t profiles) {
  Scatter found;
  double squares  = 0;
  int32_t covered = 0;
  uint64_t state  = seed;
  for (int32_t p = 0; p < profiles; ++p) {
    int32_t counts[kMostParts];
    next_uniform(state);
    profile(program, timer, samples, state ^ 0x5DEECE66D, counts);
    const double truth = program.share[part], off = static_cast<double>(counts[part]) / samples - truth;
    found.mean += off / profiles;
    squares += off * off / profiles;
    covered += wilson_low(counts[part], samples) <= truth && truth <= wilson_high(counts[part], samples);
  }
  const double variance = squares - found.mean * found.mean;
  found.mean += program.share[part];
  found.deviation = __builtin_sqrt(variance > 0 ? variance : 0);
  found.covered   = static_cast<double>(covered) / profiles;
  return found;
}

double deviation_by_law(double share, int32_t samples) {
  return __builtin_sqrt(share * (1 - share) / samples);
}

double samples_needed(double share, double half_width) {
  const double n   = kNormal * kNormal * share * (1 - share) / (half_width * half_width);
  const auto whole = static_cast<double>(static_cast<int64_t>(n));
  return whole < n ? whole + 1 : whole;
}

}  // namespace fathom::book
