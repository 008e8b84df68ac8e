// One slab for all intermediate tensors: each gets bytes that no other uses while it lives.
#pragma once

#include <cstdint>
#include <vector>

namespace fathom::compile {

// A tensor that is written by launch `first` and read last by launch `last`.
struct Lifetime {
  int64_t bytes = 0;
  int first = 0, last = 0;
};

struct Slab {
  std::vector<int64_t> offsets;  // of each tensor, multiples of 64
  int64_t bytes = 0;
};

// Greedy: the largest first, each at the lowest offset that is free while it lives.
Slab plan_slab(const std::vector<Lifetime>& lifetimes);
// The most bytes that live at one launch, rounded as the slab's are: no plan needs less.
int64_t live_bytes(const std::vector<Lifetime>& lifetimes);

}  // namespace fathom::compile
