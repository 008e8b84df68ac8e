#include "lab/floor_check.h"

#include <gtest/gtest.h>

namespace fathom::lab {
namespace {

using Samples = std::vector<double>;

std::optional<double> not_measured_again() {
  ADD_FAILURE() << "the floor is measured again";
  return std::nullopt;
}
std::optional<double> still_100() { return 100; }

TEST(FloorCheck, ATimeAboveTheFloorIsNotProbedAgain) {
  int probes       = 0;
  const auto probe = [&] { return ++probes, Samples{1, 1, 1}; };
  EXPECT_FALSE(check_floor(100, std::nullopt, std::nullopt, probe, not_measured_again));
  EXPECT_FALSE(check_floor(100, 100, std::nullopt, probe, not_measured_again));
  EXPECT_FALSE(check_floor(90, 100, std::nullopt, probe, not_measured_again)) << "a tenth is tolerated";
  EXPECT_EQ(probes, 0);
}

TEST(FloorCheck, ATimeThatStaysBelowItIsInvalid) {
  const auto caught = check_floor(
      50, 100, std::nullopt,
      [] {
        return Samples{55, 60, 52, 48, 300};
      },
      still_100);
  ASSERT_TRUE(caught.has_value());
  EXPECT_EQ(to_string(caught->outcome), "invalid");
  EXPECT_EQ(caught->defence, "floor");
  EXPECT_EQ(caught->detail, "55 ns a call; the declared work takes at least 100 ns on this machine");
}

TEST(FloorCheck, AHiccupIsForgiven) {
  EXPECT_FALSE(check_floor(
      50, 100, std::nullopt,
      [] {
        return Samples{95, 96, 50, 97, 98};
      },
      not_measured_again));
}

TEST(FloorCheck, AControlThatWasFasterThanTheFloorLowersIt) {
  const auto probe = [] { return Samples{60, 60, 60, 60, 60}; };
  EXPECT_TRUE(check_floor(60, 100, 120, probe, still_100)) << "a slower control changes nothing";
  EXPECT_TRUE(check_floor(60, 100, 70, probe, still_100));
  EXPECT_FALSE(check_floor(60, 100, 65, probe, not_measured_again));
}

TEST(FloorCheck, AFloorOfABusyMachineIsMeasuredAgain) {
  const auto probe = [] { return Samples{60, 60, 60, 60, 60}; };
  EXPECT_FALSE(check_floor(60, 100, std::nullopt, probe, [] { return std::optional(50.0); }));
  const auto caught = check_floor(60, 100, std::nullopt, probe, [] { return std::optional(80.0); });
  ASSERT_TRUE(caught.has_value());
  EXPECT_EQ(caught->detail, "60 ns a call; the declared work takes at least 80 ns on this machine");
  EXPECT_TRUE(check_floor(60, 100, std::nullopt, probe, [] { return std::optional<double>(); }));
}

// Only the rates can change, and they only rise.
TEST(FloorCheck, MeasuredAgainItIsNoHigher) {
  const Cost cost{.read = 4096, .written = 4096, .flops = 1000};
  const auto before = floor_ns(Backend::cpu, cost, 8192, 1);
  ASSERT_TRUE(before.has_value());
  const auto again = floor_measured_again(Backend::cpu, cost, 8192, 1);
  ASSERT_TRUE(again.has_value());
  EXPECT_LE(*again, *before);
  EXPECT_EQ(floor_ns(Backend::cpu, cost, 8192, 1), again) << "kept";
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
