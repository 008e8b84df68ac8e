// A page of bars from the metrics of a run's variants: what each has of a metric, and how far that is from
// its baseline.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::report {

// One metric of one experiment at one point.
struct MetricBars {
  std::string experiment, at, metric;  // "ch15/monolithic_engine", "requests=40", "ttft_p50_ns"
  bool higher_is_better = false;
  struct Bar {
    std::string variant;
    double value  = 0;  // in the unit that ends the metric's name
    bool baseline = false;
  };
  std::vector<Bar> bars;
};

// Self-contained HTML. Bars begin at 0 and end at the largest value of their chart; negative values and those
// that are no number have no bar.
std::string metrics_page(std::string_view title, std::span<const MetricBars> charts);

}  // namespace fathom::report
