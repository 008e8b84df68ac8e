// Maximum and sum of exponentials of a row in one walk: Milakov and Gimelshein, Online normalizer calculation
// for softmax, arXiv:1805.02867, 2018.
#pragma once

#include <cmath>

#include "passes.h"
#include "softmax.h"

namespace fathom::lab::online_softmax_cpu {

struct Normalizer {
  float max = kMinusInfinity;
  float sum = 0;  // of exp(x - max)
};

// The paper corrects the sum at every element; here it is corrected once for a block that raises the maximum,
// which is cheap. `note(i, max)` is told the maximum so far for the block at i, and `keep(i, e, count)` gets
// its exponentials, taken with that maximum.
template <class Note, class Keep>
HWY_INLINE Normalizer normalizer(const float* x, int64_t n, Note note, Keep keep) {
  Normalizer row;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t m = std::min(kBlock, n - i);
    const float max = maximum(x + i, m);
    if (max > row.max) {
      row.sum *= std::exp(row.max - max);
      row.max = max;
    }
    note(i, row.max);
    row.sum += sum_of_exponentials(x + i, m, row.max,
                                   [&](int64_t j, Vector e, int64_t count) { keep(i + j, e, count); });
  }
  return row;
}

}  // namespace fathom::lab::online_softmax_cpu
