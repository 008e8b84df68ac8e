#include "launch/nearest_nics.h"

#include <gtest/gtest.h>

namespace fathom::launch {
namespace {

using Names = std::vector<std::string>;

// Made up after an 8-GPU host: a root port with a switch for each two GPUs and two NICs.
PciDevice device(const std::string& name, int port, int slot) {
  return {name, "/sys/devices/pci0000:" + std::to_string(port) + "0/0000:" + std::to_string(port) +
                    "0:01.0/0000:" + std::to_string(port) + "1:00.0/0000:" + std::to_string(port) + "2:0" +
                    std::to_string(slot) + ".0"};
}

TEST(NearestNics, ThoseOfTheSameSwitchSharedEvenly) {
  std::vector<PciDevice> gpus, nics;
  for (int i = 0; i < 8; ++i) {
    gpus.push_back(device("gpu" + std::to_string(i), 1 + i / 2, i % 2));
    nics.push_back(
        device("mlx5_" + std::to_string(7 - i), 1 + i / 2, 2 + i % 2));  // numbered the other way round
  }
  const auto one = nearest_nics(gpus, nics, 1).value();
  EXPECT_EQ(
      one,
      (std::vector<Names>{
          {"mlx5_6"}, {"mlx5_7"}, {"mlx5_4"}, {"mlx5_5"}, {"mlx5_2"}, {"mlx5_3"}, {"mlx5_0"}, {"mlx5_1"}}));
  const auto two = nearest_nics(gpus, nics, 2).value();
  for (int i = 0; i < 8; ++i) {
    Names sorted = two[static_cast<size_t>(i)];
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted,
              (Names{"mlx5_" + std::to_string(6 - i / 2 * 2), "mlx5_" + std::to_string(7 - i / 2 * 2)}))
        << i;
  }
}

TEST(NearestNics, FarOnesWhereNoneIsNear) {
  const std::vector<PciDevice> gpus = {device("a", 1, 0), device("b", 2, 0), device("c", 3, 0)};
  const std::vector<PciDevice> nics = {device("x", 1, 1), device("y", 1, 2)};
  EXPECT_EQ(nearest_nics(gpus, nics, 1).value(), (std::vector<Names>{{"x"}, {"y"}, {"x"}}));
  EXPECT_EQ(nearest_nics({}, nics, 1).value().size(), 0u);
  EXPECT_EQ(nearest_nics(gpus, {}, 0).value(), (std::vector<Names>{{}, {}, {}}));
  EXPECT_FALSE(nearest_nics(gpus, nics, 3));
  EXPECT_NE(nearest_nics(gpus, {}, 1).error().message.find("there are 0"), std::string::npos);
}

// 0000:10 and 0000:1 share letters, and no bridge.
TEST(NearestNics, ComparesPartsNotLetters) {
  const std::vector<PciDevice> gpus = {{"gpu", "/sys/devices/pci0000:1/0000:1:01.0"}};
  const std::vector<PciDevice> nics = {{"a", "/sys/devices/pci0000:10/0000:1:01.0"},
                                       {"b", "/sys/devices/pci0000:1/0000:1:02.0"}};
  EXPECT_EQ(nearest_nics(gpus, nics, 1).value(), (std::vector<Names>{{"b"}}));
}

}  // namespace
}  // namespace fathom::launch
