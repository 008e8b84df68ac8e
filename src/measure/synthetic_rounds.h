// For tests: simulated log-ratios per round, ln(t_baseline / t_variant), of machines with known kinds of
// noise, all with median ln(true ratio) = `shift`. Transforms mt19937_64 itself, so a seed gives the same
// numbers with every library.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <string>
#include <vector>

namespace fathom::measure {

class Noisy {
 public:
  explicit Noisy(uint64_t seed) : generator_(seed) {}

  double uniform() { return (static_cast<double>(generator_() >> 11) + 0.5) * 0x1p-53; }
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform()); }
  double cauchy() { return std::tan(std::numbers::pi * (uniform() - 0.5)); }

 private:
  std::mt19937_64 generator_;
};

enum class Machine {
  quiet,         // 2 % Gaussian on each side
  heavy_tailed,  // Cauchy: no mean, no variance
  spiky,         // 1 %, and one time in ten on either side a lognormal spike of about 30 %
  bimodal,       // each side draws one of two modes 6 % apart
  walking,       // a random walk of 2 % a measurement hits both sides, in ABBA order
  ramping,       // both sides slow down by 1 % a measurement, in ABBA order
  sticky,        // bimodal, modes redrawn with probability `pace` a round: a mean 1 / pace rounds in a state
  drifting,      // the ratio itself wanders: AR(1), coefficient 1 - `pace`, standard deviation 3 %
  drifting_under_noise,  // AR(1) of 1.5 % under 3 % of white noise
};

inline std::string name(Machine machine) {
  constexpr const char* kNames[] = {"quiet",   "heavy_tailed", "spiky",
                                    "bimodal", "walking",      "ramping",
                                    "sticky",  "drifting",     "drifting_under_noise"};
  return kNames[static_cast<int>(machine)];
}

inline std::vector<double> synthetic_rounds(Machine machine, int64_t rounds, Noisy& noisy, double pace = 1,
                                            double shift = 0) {
  const auto redraw = [&] { return noisy.uniform() < 0.4 ? 0.06 : 0.0; };
  const auto spike  = [&] { return noisy.uniform() < 0.1 ? 0.3 * std::exp(noisy.normal()) : 0.0; };
  double common     = 0;                     // of the machine, in ln(time)
  double drift      = noisy.normal();        // of the ratio, standard deviation 1
  double mode[2]    = {redraw(), redraw()};  // of each side

  std::vector<double> series;
  for (int64_t round = 0; round < rounds; ++round) {
    double side[2] = {0, 0};  // ln(time) of baseline and variant
    for (int position = 0; position < 2; ++position) {
      double& time = side[round % 2 == 0 ? position : 1 - position];
      switch (machine) {
        case Machine::quiet:
          time = 0.02 * noisy.normal();
          break;
        case Machine::heavy_tailed:
          time = 0.005 * noisy.cauchy();
          break;
        case Machine::spiky:
          time = 0.01 * noisy.normal() + spike();
          break;
        case Machine::bimodal:
          time = redraw() + 0.005 * noisy.normal();
          break;
        case Machine::walking:
          time = (common += 0.02 * noisy.normal()) + 0.01 * noisy.normal();
          break;
        case Machine::ramping:
          time = (common += 0.01) + 0.01 * noisy.normal();
          break;
        case Machine::sticky:
          time = 0.005 * noisy.normal();
          break;
        case Machine::drifting:
          break;
        case Machine::drifting_under_noise:
          time = 0.03 / std::numbers::sqrt2 * noisy.normal();
          break;
      }
    }
    double ratio = side[0] - side[1];
    if (machine == Machine::sticky) {
      for (double& m : mode)
        if (noisy.uniform() < pace) m = redraw();
      ratio += mode[0] - mode[1];
    }
    if (machine == Machine::drifting) ratio += 0.03 * drift;
    if (machine == Machine::drifting_under_noise) ratio += 0.015 * drift;
    const double memory = 1 - pace;
    drift               = memory * drift + std::sqrt(1 - memory * memory) * noisy.normal();
    series.push_back(shift + ratio);
  }
  return series;
}

// The largest share that `trials` may show when the true share is at most `share`: three standard errors.
inline double allowed(double share, int trials) {
  return share + 3 * std::sqrt(share * (1 - share) / trials);
}

}  // namespace fathom::measure
