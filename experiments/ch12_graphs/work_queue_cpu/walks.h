// The problem: n walks of uneven length. Item i starts at start(i) and takes length(i) steps of a xorshift
// generator; out(i) is where it ends. An item's cost is its number of steps, which i does not tell.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/rng.h"
#include "lab/problem.h"

namespace fathom::lab::work_queue_cpu {

// xorshift32 (Marsaglia 2003): each step depends on the one before, some six cycles.
inline uint32_t walk(uint32_t x, uint32_t steps) {
  for (uint32_t s = 0; s < steps; ++s) {
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
  }
  return x;
}

struct Walks {
  static constexpr double kLongest = 8192;

  View<const uint32_t, 1> start, length;
  View<uint32_t, 1> out;

  Walks(const Point& at, Arena& arena)
      : start(arena.input<uint32_t>({at["items"]}, Uniform{1, 0x1p32})),
        length(arena.input<uint32_t>({at["items"]}, generate<uint32_t>(uneven_lengths))),
        out(arena.output<uint32_t>({at["items"]})) {}

  Cost cost() const { return {.read = start.bytes() + length.bytes(), .written = out.bytes()}; }

  uint32_t expected(int64_t i) const {
    uint64_t x = start(i);
    for (int64_t s = length(i); s > 0; --s) {
      x = (x ^ (x * 8192)) % (uint64_t{1} << 32);
      x = x ^ (x / 131072);
      x = (x ^ (x * 32)) % (uint64_t{1} << 32);
    }
    return static_cast<uint32_t>(x);
  }

 private:
  // Two kinds of unevenness that real work has. A heavy tail: Pareto with exponent 1.5 from 8 steps on, whose
  // mean is three times that; a few items in a thousand take hundreds. And a trend: the last items cost four
  // times as much as the first, as in causal attention, or with documents sorted by size.
  static void uneven_lengths(uint32_t* length, int64_t n, uint64_t seed) {
    std::vector<double> u(static_cast<size_t>(n));
    fill_uniform(u.data(), n, seed, 0, 1);
    for (int64_t i = 0; i < n; ++i) {
      const double tail  = std::pow(1 - u[static_cast<size_t>(i)], -1 / 1.5);
      const double trend = 1 + 3 * static_cast<double>(i) / static_cast<double>(n);
      length[i]          = static_cast<uint32_t>(std::min(8 * tail * trend, kLongest));
    }
  }
};

void static_split(const Walks&, Context&);
void atomic_queue(const Walks&, Context&);
void batched_atomics(const Walks&, Context&);

}  // namespace fathom::lab::work_queue_cpu
