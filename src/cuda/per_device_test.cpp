#include "cuda/per_device.h"

#include <gtest/gtest.h>

#include "cuda/device.h"

namespace fathom {
namespace {

TEST(PerDevice, MakesAValueOnce) {
  if (!find_device({0})) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  PerDevice<int> value;
  int made = 0;
  for (int call = 0; call < 3; ++call) EXPECT_EQ(value.get([&] { return ++made; }), 1);
}

TEST(PerDevice, AValueMayNeedAnother) {
  if (!find_device({0})) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  PerDevice<int> blocks, multiprocessors;
  EXPECT_EQ(blocks.get([&] { return 2 * multiprocessors.get([] { return 132; }); }), 264);
}

}  // namespace
}  // namespace fathom
