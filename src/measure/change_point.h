// Change points in a history of runs: one value per run (a median time, a ratio), oldest first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fathom::measure {

struct ChangePoint {
  int64_t index = 0;  // of the first run at the new level
  // Medians of the runs on either side, up to the neighbouring change points.
  double before = 0, after = 0;
  double p_value = 1;
};

struct ChangePointOptions {
  double significance  = 0.01;  // probability of any false alarm in a history without a change
  int64_t min_stretch  = 3;     // fewer runs at a level are outliers, not a level
  int64_t permutations = 999;
  uint64_t seed        = 1;
};

// Weighted CUSUM of ranks: at each split k, the sum of the first k ranks against its expectation, in units of
// its standard deviation sqrt(k (n-k) (n+1) / 12). Ranks keep one outlier from looking like a level. A
// permutation test judges the largest over k; it is exact at any n and with ties, provided the runs are
// exchangeable when nothing changed. Both sides of a change point are searched again. The search ends at the
// first stretch without a change, so the false-alarm rate of a quiet history is `significance`.
std::vector<ChangePoint> change_points(std::span<const double> history,
                                       const ChangePointOptions& options = {});

}  // namespace fathom::measure
