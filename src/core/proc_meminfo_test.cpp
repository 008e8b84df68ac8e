#include "core/proc_meminfo.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

TEST(ProcMeminfo, IsParsedByTheWholeKey) {
  EXPECT_EQ(parse_meminfo("MemTotal:       1024 kB\nMemFree: 1 kB\n", "MemTotal"), 1 << 20);
  EXPECT_EQ(parse_meminfo("MemTotal:       1024 kB\nMemFree: 1 kB\n", "MemFree"), 1 << 10);
  EXPECT_EQ(parse_meminfo("MemTotalX: 5 kB\n", "MemTotal"), std::nullopt);
  EXPECT_EQ(parse_meminfo("", "MemTotal"), std::nullopt);
}

TEST(ProcMeminfo, OfThisMachine) {
  ASSERT_TRUE(proc_meminfo("MemTotal"));
  EXPECT_GT(*proc_meminfo("MemTotal"), int64_t{64} << 20);
  EXPECT_LE(proc_meminfo("MemAvailable"), proc_meminfo("MemTotal"));
  EXPECT_EQ(proc_meminfo("NoSuchLine"), std::nullopt);
}

}  // namespace
}  // namespace fathom
