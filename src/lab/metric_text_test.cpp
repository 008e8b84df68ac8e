#include "lab/metric_text.h"

#include <gtest/gtest.h>

namespace fathom::lab {
namespace {

TEST(MetricText, NamesSayTheirUnit) {
  EXPECT_EQ(metric_name_text("steal_ms"), "steal, ms");
  EXPECT_EQ(metric_name_text("branch_efficiency_pct"), "branch efficiency, %");
  EXPECT_EQ(metric_name_text("tail_ns"), "tail");  // its values bring their unit
  EXPECT_EQ(metric_name_text("dram_bytes_per_s"), "dram bytes/s");
  EXPECT_EQ(metric_name_text("kernels"), "kernels");
}

TEST(MetricText, Values) {
  EXPECT_EQ(metric_value_text("tail_ns", 1'300'000), "1.30 ms");
  EXPECT_EQ(metric_value_text("dram_bytes_per_s", 12.3e9), "12.3 GB/s");
  EXPECT_EQ(metric_value_text("kernels", 1048576), "1,048,576");
  EXPECT_EQ(metric_value_text("occupancy_pct", 62.125), "62.1");
}

}  // namespace
}  // namespace fathom::lab
