// The compiler does not know how many resident blocks a kernel needs to hide latency. By default it takes the
// registers that make one thread fast, and these decide the number of resident blocks.
#include <cmath>

#include "filter_bank.h"
#include "lab/experiment.h"

namespace fathom::lab::launch_bounds {

FilterBank::FilterBank(const Point& at, Arena& arena)
    : in(arena.input<float>({at["m"], at["n"]}, Uniform{-1, 1})),
      // |a1| + |a2| < 1: every section is stable, and so is one of absolute values.
      coefficient(arena.input<float>({5 * kSections, at["n"]}, Uniform{-0.3, 0.3})),
      out(arena.output<float>({at["m"], at["n"]})) {}

Cost FilterBank::cost() const {
  if (out.size() == 0) return {};
  return {.read    = in.bytes() + coefficient.bytes(),
          .written = out.bytes(),
          .flops   = 9.0 * kSections * static_cast<double>(out.size())};
}

// Direct form I, from the definition; magnitudes pass through a filter of absolute values.
Sum FilterBank::expected(int64_t t, int64_t c) const {
  struct Past {
    double v[3] = {}, w[3] = {};  // now, one and two samples ago
  } value[kSections], magnitude[kSections];
  const auto step = [](Past& past, double v, double b0, double b1, double b2, double a1, double a2) {
    past.v[2] = past.v[1], past.v[1] = past.v[0], past.v[0] = v;
    past.w[2] = past.w[1], past.w[1] = past.w[0];
    return past.w[0] = b0 * v + b1 * past.v[1] + b2 * past.v[2] + a1 * past.w[1] + a2 * past.w[2];
  };
  double v = 0, m = 0;
  for (int64_t now = 0; now <= t; ++now) {
    v = in(now, c);
    m = std::abs(v);
    for (int s = 0; s < kSections; ++s) {
      double q[5];
      for (int k = 0; k < 5; ++k) q[k] = coefficient(5 * s + k, c);
      v = step(value[s], v, q[0], q[1], q[2], q[3], q[4]);
      m = step(magnitude[s], m, std::abs(q[0]), std::abs(q[1]), std::abs(q[2]), std::abs(q[3]),
               std::abs(q[4]));
    }
  }
  // Five roundings in each section, and what the state carries over from one sample to the next.
  return {.value = v, .magnitude = m, .length = 5 * kSections + t};
}

const Experiment<FilterBank> filter_bank{
    .question = "When does it pay to tell the compiler how many blocks must be resident?",
    .limit    = Limit::memory,
    // 792 blocks of 512 channels: on 132 multiprocessors three full rounds of two blocks, or two of three.
    .axes     = {{"m", {160}}, {"n", {405504}}},
    .check_at = {{"m", {0, 1, 7, 8, 9, 33}}, {"n", {0, 1, 31, 511, 512, 513}}},
    .variants =
        {
            {.id         = "unbounded",
             .launch     = on_gpu(unbounded),
             .techniques = {},
             .idea       = "the compiler's choice: 48 registers, 2 blocks of 512 threads",
             .prediction = predict::share(0.33)},
            {.id         = "bounded",
             .launch     = on_gpu(bounded),
             .techniques = {"launch_bounds"},
             .idea       = "three blocks asked for: 40 registers, no spills",
             .prediction = predict::ratio(1.45)},
            {.id         = "prefetched",
             .launch     = on_gpu(prefetched),
             .techniques = {"launch_bounds", "software_prefetch"},
             .idea       = "two blocks asked for: 64 registers, eight samples fetched ahead",
             .prediction = predict::share_at_least(0.85)},
        },
    .backend = Backend::cuda,
    .catalog = {"occupancy-005"},
};
FATHOM_REGISTER(filter_bank);

}  // namespace fathom::lab::launch_bounds
