// The problem of the experiments on threads: `steps` time steps of heat diffusion along a rod of n cells,
// ends held,
//
//   u'(i) = u(i) + r (u(i-1) - 2 u(i) + u(i+1)),  r = 1/4, fp32
//
// Every thread owns a piece of the rod, and no step may begin before all neighbours have finished the last:
// one barrier a step. The pieces stay in the caches of whoever computed them, if the same core comes back to
// them.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/thread_pool.h"
#include "lab/problem.h"

namespace fathom::lab {

struct Diffusion {
  int64_t steps;
  View<const float, 1> in;
  View<float, 1> out;
  View<float, 1> other;  // of the two buffers between which steps alternate; the last one writes `out`

  static constexpr float kRate = 0.25f;

  Diffusion(const Point& at, Arena& arena)
      : steps(at["steps"]),
        in(arena.input<float>({at["n"]}, Uniform{0, 1})),
        out(arena.output<float>({at["n"]})),
        other(arena.workspace<float>({at["n"]})) {}

  // Per cell and step at least 4 flops: (u(i-1) + u(i+1)) / 4 + u(i) / 2.
  Cost cost() const {
    return {.read    = in.bytes(),
            .written = out.bytes(),
            .flops   = 4.0 * static_cast<double>(steps) * static_cast<double>(in.size())};
  }

  // Cell i after all steps depends on `steps` cells to either side only: those are stepped, in double.
  Sum expected(int64_t i) const {
    const int64_t n = in.extent(0), first = std::max<int64_t>(0, i - steps);
    const int64_t last = std::min(n - 1, i + steps);
    std::vector<double> u, next;
    for (int64_t k = first; k <= last; ++k) u.push_back(in(k));
    for (int64_t step = 0; step < steps; ++step) {
      next = u;  // the window's edges go wrong from here on, one cell more each step: too slow to reach i
      for (size_t k = 1; k + 1 < u.size(); ++k)
        next[k] = u[k] + static_cast<double>(kRate) * (u[k - 1] - 2 * u[k] + u[k + 1]);
      u.swap(next);
    }
    const double value = u[static_cast<size_t>(i - first)];
    // Initial values are not negative and every step takes a weighted mean of three, so `value` is also the
    // sum of magnitudes of what it was made from; the 2 u that is subtracted doubles that. Five roundings a
    // step.
    return {.value = value, .magnitude = 2 * std::abs(value), .length = std::max<int64_t>(1, 5 * steps)};
  }
};

// One section of the pool for each step; its end is the barrier.
inline void diffuse(const Diffusion& p, ThreadPool& pool) {
  constexpr int64_t kGrain = 256;  // cells: no two threads write one line
  const int64_t n          = p.in.extent(0);
  if (p.steps == 0) {
    std::copy(p.in.data(), p.in.data() + n, p.out.data());
    return;
  }
  const float* from = p.in.data();
  for (int64_t step = 0; step < p.steps; ++step) {
    float* __restrict to = (p.steps - step) % 2 == 1 ? p.out.data() : p.other.data();
    pool.parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = std::max<int64_t>(1, begin); i < std::min(n - 1, end); ++i)
        to[i] = from[i] + Diffusion::kRate * (from[i - 1] - 2 * from[i] + from[i + 1]);
      if (begin == 0) to[0] = from[0];
      if (end == n) to[n - 1] = from[n - 1];
    });
    from = to;
  }
}

}  // namespace fathom::lab
