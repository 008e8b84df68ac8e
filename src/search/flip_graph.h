// Discovery of bilinear schemes by random walks in the flip graph.
//
// Over Z/2 two products that share a factor can be exchanged for two others:
//   a (x) b (x) c + a (x) b' (x) c'  =  a (x) (b + b') (x) c + a (x) b' (x) (c + c')
// Such a flip keeps the rank. Now and then two products come to share two factors and become one, or a factor
// becomes zero: a reduction (Kauers, Moosbauer, "Flip graphs for matrix multiplication", ISSAC 2023). Where a
// walk is stuck, a plus transition splits two products into three (Arai, Ichikawa, Hukushima, "Adaptive flip
// graph algorithm for matrix multiplication", ISSAC 2024). What a walk finds over Z/2 is lifted to the
// integers (search/hensel_lift.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "search/bilinear.h"

namespace fathom::search {

// A scheme over Z/2: bit i of a factor is the coefficient of entry i, row-major.
struct BinaryTerm {
  uint64_t a = 0, b = 0, c = 0;
};
struct BinaryScheme {
  ProductShape shape;
  std::vector<BinaryTerm> terms;
};

struct FlipSearch {
  ProductShape shape = {};
  int target_rank    = 0;  // ends the search, once lifted and verified
  uint64_t seed      = 0;
  int64_t flips      = 0;  // the budget of all walks together
  // Of one walk, which begins at the schoolbook scheme: 0 stands for the whole budget.
  int64_t flips_of_a_walk = 0;
  // Without a reduction, before a plus transition.
  int64_t patience = 50'000;
};

struct Discovery {
  std::optional<BilinearScheme> scheme;  // of the target rank or less, verified; none where the budget ended
  int best_rank      = 0;                // that a walk reached over Z/2
  int64_t flips      = 0;                // made
  int64_t walks      = 0;                // begun
  int64_t not_lifted = 0;                // schemes of the target rank without a lift to {-1, 0, 1}
};

// The same answer for the same search, whatever the machine. Precondition: each side is at least 1, no matrix
// has more than 64 entries, and the budget is not negative.
Discovery discover(const FlipSearch& search);

}  // namespace fathom::search
