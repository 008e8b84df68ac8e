// Prints what six semirings say of the graph of chapter 23: for each, the sum over all walks from A to F of
// at most four edges.
#include <cstdio>

#include "book/semiring_model.h"

int main() {
  using namespace fathom::book;
  int32_t weights[36]            = {};
  constexpr const char* kEdges[] = {"AB2", "AC5", "BC2", "BD7", "CD3", "CE8", "DE1", "DF6", "EF2", "EB4"};
  for (const char* e : kEdges) weights[6 * (e[0] - 'A') + e[1] - 'A'] = e[2] - '0';
  double sums[36];
  for (int32_t semiring = 0; semiring < 6; ++semiring) {
    sum_over_walks(static_cast<Semiring>(semiring), 6, weights, 4, true, sums);
    std::printf("%.6g\n", sums[5]);
  }
}
