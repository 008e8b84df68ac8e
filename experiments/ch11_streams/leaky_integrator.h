// y = x + decay y, from y = 0, for a number of steps: arithmetic of any length on each number by itself. The
// experiments of this chapter take it where the subject is when a kernel runs and not what it computes.
#pragma once

#include <cmath>
#include <cstdint>

namespace fathom::lab::leaky_integrator {

inline constexpr float kDecay = 0.5f;

// y / x, in closed form.
inline double gain(int64_t steps) { return (1 - std::pow(double{kDecay}, steps)) / (1 - double{kDecay}); }
// Roundings in a row: those of early steps decay.
inline constexpr int64_t kRoundings = 4;

inline double flops(int64_t numbers, int64_t steps) {
  return 2.0 * static_cast<double>(numbers) * static_cast<double>(steps);
}

}  // namespace fathom::lab::leaky_integrator
