#include "row_formats.h"

#include <algorithm>

namespace fathom::lab::precision_by_entropy {

std::vector<Format> upper_half_in_fp8(const std::vector<double>& rank) {
  std::vector<size_t> order(rank.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank[a] < rank[b]; });
  std::vector<Format> formats(rank.size(), Format::fp4);
  for (size_t i = order.size() - order.size() / 2; i < order.size(); ++i) formats[order[i]] = Format::fp8;
  return formats;
}

void forward_in(const RoundedForward& p, const std::vector<Format>& of_rows) {
  rounded_forward::forward_in(
      p, [&](int64_t, int64_t row, const float*) { return of_rows[static_cast<size_t>(row)]; });
}

}  // namespace fathom::lab::precision_by_entropy
