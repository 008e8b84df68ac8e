#include "load/arrivals.h"

#include <cmath>
#include <numbers>

#include "core/expect.h"
#include "core/rng.h"

namespace fathom::load {
namespace {

// Random numbers for one gap. They do not depend on how many numbers earlier gaps used.
class Draws {
 public:
  Draws(uint64_t seed, int64_t gap) : seed_(seed), gap_(static_cast<uint64_t>(gap)) {}

  double uniform() {  // in (0, 1)
    const auto words =
        philox({static_cast<uint32_t>(gap_), static_cast<uint32_t>(gap_ >> 32), next_++, 0x6A70},
               {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
    const uint64_t bits = uint64_t{words[1]} << 32 | words[0];
    return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
  }
  double normal() {  // Box-Muller, one of its two values
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  uint64_t seed_, gap_;
  uint32_t next_ = 0;
};

// A gamma variable of mean `shape`: Marsaglia and Tsang, "A simple method for generating gamma variables",
// 2000; below 1 by its section 6, gamma(a) = gamma(a + 1) u^(1/a).
double gamma(double shape, Draws& draws) {
  if (shape < 1) {
    const double larger = gamma(shape + 1, draws);
    return larger * std::pow(draws.uniform(), 1 / shape);
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = draws.normal(), root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(draws.uniform()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
  }
}

double rate_at(const ArrivalProcess& process, int64_t index, int64_t count) {
  if (!process.ramp) return process.request_rate;
  const Ramp& ramp   = *process.ramp;
  const double share = count > 1 ? static_cast<double>(index) / static_cast<double>(count - 1) : 0;
  return ramp.shape == Ramp::Shape::linear ? ramp.start_rps + (ramp.end_rps - ramp.start_rps) * share
                                           : ramp.start_rps * std::pow(ramp.end_rps / ramp.start_rps, share);
}

}  // namespace

std::vector<double> arrival_times(const ArrivalProcess& process, int64_t count) {
  FATHOM_EXPECT(process.burstiness > 0, "burstiness is positive");
  FATHOM_EXPECT(process.ramp
                    ? process.ramp->start_rps > 0 && process.ramp->end_rps > 0 &&
                          std::isfinite(process.ramp->start_rps) && std::isfinite(process.ramp->end_rps)
                    : process.request_rate > 0,
                "request rates are positive");
  std::vector<double> times;
  times.reserve(static_cast<size_t>(count));
  double now = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double rate = rate_at(process, i, count);
    if (std::isinf(process.burstiness)) {
      now += 1 / rate;
    } else if (std::isfinite(rate)) {
      Draws draws(process.seed, i);
      now += gamma(process.burstiness, draws) / (rate * process.burstiness);
    }
    times.push_back(now);
  }
  if (process.ramp || now == 0) return times;
  const double stretch = static_cast<double>(count) / process.request_rate / now;
  for (double& time : times) time *= stretch;
  return times;
}

}  // namespace fathom::load
