// A measured value beside the time: what a record's `metrics` hold.
#pragma once

#include <string>

namespace fathom::lab {

struct Metric {
  double value = 0;
  std::string better;  // "higher" | "lower"
};

}  // namespace fathom::lab
