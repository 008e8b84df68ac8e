// The problem: out(i) = x(0) + ... + x(i), the inclusive scan (prefix sum) of n numbers, fp32.
#pragma once

#include <cmath>
#include <cstdint>

#include "lab/problem.h"

namespace fathom::lab::prefix_scan_cpu {

struct Scan {
  View<const float, 1> x;
  View<float, 1> out;

  Scan(const Point& at, Arena& arena)
      : x(arena.input<float>({at["n"]}, Uniform{-1, 1})), out(arena.output<float>({at["n"]})) {}

  Cost cost() const {
    return {.read = x.bytes(), .written = out.bytes(), .flops = static_cast<double>(x.size())};
  }

  // The running sum in double. Elements are asked for in stretches of rising order, and a walk over x serves
  // each of these.
  void check(Checker& checker) const {
    int64_t next     = 0;
    double value     = 0;
    double magnitude = 0;
    checker.values("out", out, [&](int64_t i) {
      if (i < next - 1) value = magnitude = 0, next = 0;
      for (; next <= i; ++next) {
        value += static_cast<double>(x(next));
        magnitude += std::abs(x(next));
      }
      return Sum{.value = value, .magnitude = magnitude, .length = i + 1};
    });
  }
};

void serial(const Scan&, Context&);
void simd(const Scan&, Context&);
void two_pass(const Scan&, Context&);
void one_pass(const Scan&, Context&);
void streamed(const Scan&, Context&);
void inclusive_scan(const Scan&, Context&);

}  // namespace fathom::lab::prefix_scan_cpu
