// The problem: how many of n items belong to each of four classes; every thread counts its piece in counters
// of its own, and the caller adds them up. The variants differ in which threads' counters share a line.
#pragma once

#include "lab/problem.h"

namespace fathom::lab::false_sharing {

constexpr int64_t kClasses    = 4;
constexpr int64_t kLine       = 64;  // bytes
constexpr int64_t kMaxThreads = 4096;

struct CountClasses {
  View<const uint8_t, 1> in;  // the class of each item, below kClasses
  View<int64_t, 1> out;       // items in each class
  // The threads' counters, laid out by the variant: at most one line for each thread.
  View<int32_t, 1> counters;

  CountClasses(const Point& at, Arena& arena)
      : in(arena.input<uint8_t>({at["n"]}, Uniform{0, kClasses})),
        out(arena.output<int64_t>({kClasses})),
        counters(arena.workspace<int32_t>({kMaxThreads * kLine / int64_t{sizeof(int32_t)}})) {}

  Cost cost() const { return {.read = in.bytes(), .written = out.bytes()}; }
  int64_t expected(int64_t c) const {
    int64_t count = 0;
    for (int64_t i = 0; i < in.extent(0); ++i) count += in(i) == c;
    return count;
  }
};

void adjacent(const CountClasses& p, Context& context);
void padded(const CountClasses& p, Context& context);

}  // namespace fathom::lab::false_sharing
