#include "measure/change_point.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "core/expect.h"
#include "measure/statistics.h"

namespace fathom::measure {
namespace {

struct Split {
  int64_t index    = 0;
  double deviation = 0;
};

// Ranks from 1, with the mean rank for ties, minus the mean of all ranks.
std::vector<double> centred_ranks(std::span<const double> values) {
  const size_t n = values.size();
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(n);
  for (size_t first = 0, last = 0; first < n; first = last) {
    while (last < n && values[order[last]] == values[order[first]]) ++last;
    for (size_t i = first; i < last; ++i)
      ranks[order[i]] = static_cast<double>(first + last + 1) / 2 - static_cast<double>(n + 1) / 2;
  }
  return ranks;
}

Split largest_split(std::span<const double> ranks, int64_t min_stretch) {
  const auto n = static_cast<int64_t>(ranks.size());
  Split best;
  double sum = 0;
  for (int64_t k = 1; k <= n - min_stretch; ++k) {
    sum += ranks[k - 1];
    if (k < min_stretch) continue;
    const auto left        = static_cast<double>(k);
    const auto right       = static_cast<double>(n - k);
    const double deviation = std::abs(sum) / std::sqrt(left * right * (left + right + 1) / 12);
    if (deviation > best.deviation) best = {.index = k, .deviation = deviation};
  }
  return best;
}

void search(std::span<const double> history, int64_t offset, const ChangePointOptions& options,
            std::mt19937_64& generator, std::vector<ChangePoint>& found) {
  const auto n = static_cast<int64_t>(history.size());
  if (n < 2 * options.min_stretch) return;
  std::vector<double> ranks = centred_ranks(history);
  const Split split         = largest_split(ranks, options.min_stretch);
  if (split.deviation == 0) return;  // a constant history

  int64_t as_large = 1;  // the observed order is one of the permutations
  for (int64_t i = 0; i < options.permutations; ++i) {
    for (size_t j = ranks.size() - 1; j > 0; --j) std::swap(ranks[j], ranks[generator() % (j + 1)]);
    // Sums of the same ranks in another order may differ in the last bits; a tie counts against a change.
    as_large += largest_split(ranks, options.min_stretch).deviation >= split.deviation * (1 - 1e-12);
  }
  const double p_value = static_cast<double>(as_large) / static_cast<double>(options.permutations + 1);
  if (p_value > options.significance) return;

  search(history.first(split.index), offset, options, generator, found);
  found.push_back({.index = offset + split.index, .p_value = p_value});
  search(history.subspan(split.index), offset + split.index, options, generator, found);
}

}  // namespace

std::vector<ChangePoint> change_points(std::span<const double> history, const ChangePointOptions& options) {
  FATHOM_EXPECT(options.min_stretch >= 1, "a stretch of a history holds at least one run");
  FATHOM_EXPECT(std::all_of(history.begin(), history.end(), [](double x) { return std::isfinite(x); }),
                "a history holds a value that is not finite: leave failed runs out");
  std::mt19937_64 generator(options.seed);
  std::vector<ChangePoint> found;
  search(history, 0, options, generator, found);
  for (size_t i = 0; i < found.size(); ++i) {
    const int64_t start = i == 0 ? 0 : found[i - 1].index;
    const int64_t end   = i + 1 == found.size() ? static_cast<int64_t>(history.size()) : found[i + 1].index;
    found[i].before     = median(history.subspan(start, found[i].index - start));
    found[i].after      = median(history.subspan(found[i].index, end - found[i].index));
  }
  return found;
}

}  // namespace fathom::measure
