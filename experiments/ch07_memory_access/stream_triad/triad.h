// The problem: a(i) = b(i) + s c(i), n numbers of 8 bytes: the triad of McCalpin's STREAM.
#pragma once

#include <cmath>
#include <cstdint>

#include "lab/problem.h"

namespace fathom::lab::stream_triad {

struct Triad {
  static constexpr double kScale = 3;  // as in STREAM

  View<const double, 1> b, c;
  View<double, 1> a;

  Triad(const Point& at, Arena& arena)
      : b(arena.input<double>({at["n"]}, Uniform{-1, 1})),
        c(arena.input<double>({at["n"]}, Uniform{-1, 1})),
        a(arena.output<double>({at["n"]})) {}

  Cost cost() const {
    return {.read      = b.bytes() + c.bytes(),
            .written   = a.bytes(),
            .flops     = 2.0 * static_cast<double>(a.size()),
            .flop_type = DType::fp64};
  }

  void check(Checker& checker) const {
    checker.values_in_parallel("a", a, [this](int64_t i) {
      const long double product = static_cast<long double>(kScale) * c(i);
      return Sum{.value      = static_cast<double>(b(i) + product),
                 .magnitude  = std::abs(b(i)) + std::abs(static_cast<double>(product)),
                 .length     = 2,  // an FMA rounds once, a product and a sum twice
                 .accumulate = DType::fp64};
    });
  }
};

void plain(const Triad&, Context&);
void streamed(const Triad&, Context&);
void plain_threads(const Triad&, Context&);
void streamed_threads(const Triad&, Context&);

}  // namespace fathom::lab::stream_triad
