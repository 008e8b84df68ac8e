// A measured value beside the time: what a record's `metrics` hold.
#pragma once

#include <map>
#include <string>

namespace fathom::lab {

struct Metric {
  double value = 0;
  std::string better;  // "higher" | "lower"
};

// What a call has left behind beside its answer, by name. Filled by a problem's `void metrics(CallMetrics&)
// const` from its outputs on the host, once for each variant and timed point, after an untimed call. Outputs
// that the variant has not written hold NaNs.
struct CallMetrics : std::map<std::string, Metric> {};

}  // namespace fathom::lab
