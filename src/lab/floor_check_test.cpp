#include "lab/floor_check.h"

#include <gtest/gtest.h>

namespace fathom::lab {
namespace {

using Samples = std::vector<double>;

TEST(FloorCheck, ATimeAboveTheFloorIsNotProbedAgain) {
  int probes       = 0;
  const auto probe = [&] { return ++probes, Samples{1, 1, 1}; };
  EXPECT_FALSE(check_floor(100, std::nullopt, std::nullopt, probe));
  EXPECT_FALSE(check_floor(100, 100, std::nullopt, probe));
  EXPECT_FALSE(check_floor(90, 100, std::nullopt, probe)) << "a tenth is tolerated";
  EXPECT_EQ(probes, 0);
}

TEST(FloorCheck, ATimeThatStaysBelowItIsInvalid) {
  const auto caught = check_floor(50, 100, std::nullopt, [] { return Samples{55, 60, 52, 48, 300}; });
  ASSERT_TRUE(caught.has_value());
  EXPECT_EQ(to_string(caught->outcome), "invalid");
  EXPECT_EQ(caught->defence, "floor");
  EXPECT_EQ(caught->detail, "55 ns a call; the declared work takes at least 100 ns on this machine");
}

TEST(FloorCheck, AHiccupIsForgiven) {
  EXPECT_FALSE(check_floor(50, 100, std::nullopt, [] { return Samples{95, 96, 50, 97, 98}; }));
}

TEST(FloorCheck, AControlThatWasFasterThanTheFloorLowersIt) {
  const auto probe = [] { return Samples{60, 60, 60, 60, 60}; };
  EXPECT_TRUE(check_floor(60, 100, 120, probe)) << "a slower control changes nothing";
  EXPECT_TRUE(check_floor(60, 100, 70, probe));
  EXPECT_FALSE(check_floor(60, 100, 65, probe));
}

// Twice the speed of the narrower instructions is what a variant has that uses the wider ones.
TEST(PeakCheck, FasterThanThePeakOfItsInstructionsIsInvalid) {
  const Samples twice(20, 1.9), at_the_peak(20, 1.0), noisy = [] {
    Samples shares(20, 0.97);
    for (size_t i = 0; i < 9; ++i) shares[i] = 1.5;  // a neighbour slowed the control in some rounds
    return shares;
  }();
  const auto caught = check_peak(twice, "fp32 peak of avx2, 1 thread");
  ASSERT_TRUE(caught.has_value());
  EXPECT_EQ(caught->defence, "peak");
  EXPECT_EQ(to_string(caught->outcome), "invalid");
  EXPECT_NE(caught->detail.find("1.90 of the fp32 peak of avx2"), std::string::npos) << caught->detail;
  EXPECT_FALSE(check_peak(at_the_peak, "peak"));
  EXPECT_FALSE(check_peak(noisy, "peak"));
  EXPECT_FALSE(check_peak({}, "peak")) << "no rounds";
}

TEST(FloorCheck, DeclaredNothing) { EXPECT_FALSE(floor_ns(Backend::cpu, Cost{}, 4096, 1)); }

}  // namespace
}  // namespace fathom::lab
