// The problem: out = sum of table(index(i)) over n indices into a table of n words. The sum does not depend
// on the order, so the same indices may be visited in any.
#pragma once

#include <algorithm>
#include <vector>

#include "lab/problem.h"

namespace fathom::lab::gather_sorted {

struct Gather {
  static constexpr int64_t kWorkspaceSpare = 4096;  // elements beyond n

  View<const int64_t, 1> table;
  View<const uint32_t, 1> index;   // any order, with repetitions
  View<const uint32_t, 1> sorted;  // the same indices in ascending order
  View<int64_t, 1> out;            // one element
  View<uint32_t, 1> workspace;     // room for the indices in another order

  Gather(const Point& at, Arena& arena)
      : table(arena.input<int64_t>({at["n"]}, Uniform{-0x1p40, 0x1p40})),
        index(arena.input<uint32_t>({at["n"]}, Uniform{0, std::max(1.0, static_cast<double>(at["n"]))})),
        sorted(arena.input<uint32_t>({at["n"]},
                                     generate<uint32_t>([index = index](uint32_t* to, int64_t n, uint64_t) {
                                       std::vector<uint32_t> count(static_cast<size_t>(n));
                                       for (int64_t i = 0; i < n; ++i) ++count[index(i)];
                                       for (int64_t row = 0; row < n; ++row)
                                         to = std::fill_n(to, count[row], static_cast<uint32_t>(row));
                                     }))),
        out(arena.output<int64_t>({1})),
        workspace(arena.workspace<uint32_t>({at["n"] + kWorkspaceSpare})) {}

  // Every line of the table counts in full: with n indices into n words hardly one of its lines is left out.
  Cost cost() const { return {.read = table.bytes() + index.bytes(), .written = out.bytes()}; }
  int64_t expected(int64_t) const {
    int64_t sum = 0;
    for (int64_t i = 0; i < index.extent(0); ++i) sum += table(index(i));
    return sum;
  }
};

void random_order(const Gather& p, Context& context);
void bucketed(const Gather& p, Context& context);
void sorted(const Gather& p, Context& context);

}  // namespace fathom::lab::gather_sorted
