#include "transfer/landing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace fathom::transfer {
namespace {

using namespace std::chrono_literals;
using Answer = Landing::Answer;

constexpr TimePoint kStart = TimePoint() + 1h;

std::vector<std::byte> filled(size_t bytes, int value) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}

class LandingTest : public testing::Test {
 protected:
  Grant grant(std::vector<uint64_t> sizes, TimePoint now = kStart) {
    auto granted = landing_.grant(sizes, now, [this](Outcome outcome) {
      ++ends_;
      outcome_ = outcome;
    });
    EXPECT_TRUE(granted);
    return granted.value_or(Grant());
  }
  Answer arrive(const Grant& grant, uint32_t slice, const std::vector<std::byte>& bytes,
                TimePoint now = kStart) {
    return landing_.arrive(
        {.tag = grant.tag, .slice = slice, .checksum = checksum_of(grant.tag, slice, bytes)}, bytes, now);
  }

  Landing landing_{{.pages = 4, .page_bytes = 64, .lease = 100ms, .limit = 1s}};
  std::optional<Outcome> outcome_;
  int ends_ = 0;
};

TEST_F(LandingTest, CompletesWhenEverySliceHasArrivedInAnyOrder) {
  const Grant granted = grant({64, 1, 17});
  EXPECT_EQ(arrive(granted, 2, filled(17, 3)), Answer::taken);
  EXPECT_EQ(arrive(granted, 0, filled(64, 1)), Answer::taken);
  EXPECT_EQ(arrive(granted, 0, filled(64, 1)), Answer::repeated) << "a repetition is not counted";
  EXPECT_FALSE(outcome_);
  EXPECT_EQ(arrive(granted, 1, filled(1, 2)), Answer::taken);
  EXPECT_EQ(outcome_, Outcome::complete);
  EXPECT_EQ(arrive(granted, 1, filled(1, 2)), Answer::repeated);
  for (uint32_t i = 0; i < 3; ++i) {
    const auto bytes = landing_.slice(granted, i);
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == std::byte(i + 1); }));
  }
  landing_.release(granted.tag);
  EXPECT_EQ(landing_.free_pages(), 4);
  EXPECT_EQ(arrive(granted, 1, filled(1, 2)), Answer::refused);
  EXPECT_EQ(ends_, 1);
}

TEST_F(LandingTest, WrongBytesAndFailureMarksEndATransfer) {
  const Grant wrong         = grant({8, 8});
  auto bytes                = filled(8, 1);
  const uint64_t of_another = checksum_of(wrong.tag, 1, bytes);
  EXPECT_EQ(landing_.arrive({.tag = wrong.tag, .slice = 0, .checksum = of_another}, bytes, kStart),
            Answer::refused)
      << "right bytes in a wrong place";
  EXPECT_EQ(outcome_, Outcome::failed);

  outcome_.reset();
  const Grant torn = grant({8});
  EXPECT_EQ(landing_.arrive({.tag = torn.tag, .checksum = checksum_of(torn.tag, 0, bytes)},
                            std::span(bytes).first(5), kStart),
            Answer::refused);
  EXPECT_EQ(outcome_, Outcome::failed);

  outcome_.reset();
  const Grant marked = grant({8, 8});
  EXPECT_EQ(landing_.arrive({.tag = marked.tag, .slice = 1, .failed = true}, {}, kStart), Answer::refused);
  EXPECT_EQ(outcome_, Outcome::failed);
  EXPECT_EQ(landing_.free_pages(), 4);
  EXPECT_EQ(arrive(marked, 0, bytes), Answer::refused);
  EXPECT_EQ(ends_, 3);
}

TEST_F(LandingTest, ALeaseIsRenewedBySlicesAndEndsWithoutThem) {
  const Grant granted = grant({8, 8, 8, 8});
  EXPECT_EQ(arrive(granted, 0, filled(8, 1), kStart + 90ms), Answer::taken);
  EXPECT_EQ(arrive(granted, 1, filled(8, 1), kStart + 10ms), Answer::taken) << "an earlier time";
  landing_.expire(kStart + 189ms);
  EXPECT_FALSE(outcome_) << "a renewal never shortens a lease";
  EXPECT_TRUE(landing_.renew(granted.tag, kStart + 180ms));
  landing_.expire(kStart + 279ms);
  EXPECT_FALSE(outcome_);
  landing_.expire(kStart + 280ms);
  EXPECT_EQ(outcome_, Outcome::expired);
  EXPECT_FALSE(landing_.renew(granted.tag, kStart + 280ms));
  EXPECT_EQ(landing_.free_pages(), 4);
}

TEST_F(LandingTest, ATransferEndsAtItsLimitHoweverSlicesArrive) {
  const Grant granted = grant({8, 8, 8, 8});
  for (uint32_t i = 0; i < 3; ++i)
    EXPECT_EQ(arrive(granted, i, filled(8, 1), kStart + (i + 1) * 320ms), Answer::taken);
  landing_.expire(kStart + 999ms);
  EXPECT_FALSE(outcome_);
  landing_.expire(kStart + 1s);
  EXPECT_EQ(outcome_, Outcome::expired);
}

TEST_F(LandingTest, ALateWriteDoesNotTouchPagesGrantedAgain) {
  const Grant late = grant({64, 64, 64, 64});
  EXPECT_EQ(arrive(late, 0, filled(64, 9)), Answer::taken);
  landing_.revoke(late.tag);
  EXPECT_EQ(outcome_, Outcome::revoked);
  const Grant next = grant({64, 64, 64, 64});
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(arrive(next, i, filled(64, 5)), Answer::taken);
    EXPECT_EQ(arrive(late, i, filled(64, 9)), Answer::refused);
  }
  EXPECT_EQ(outcome_, Outcome::complete);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(landing_.slice(next, i)[63], std::byte(5));
}

TEST_F(LandingTest, RefusesAnotherProcessesEpochAndNumbersBeyondTheGrant) {
  Grant granted = grant({8});
  EXPECT_EQ(arrive(granted, 1, filled(8, 1)), Answer::refused);
  granted.tag.epoch ^= 1;
  EXPECT_EQ(arrive(granted, 0, filled(8, 1)), Answer::refused);
  EXPECT_FALSE(outcome_);
  const Landing other({.pages = 1, .page_bytes = 1});
  EXPECT_NE(landing_.epoch(), other.epoch());
}

TEST_F(LandingTest, GrantsNothingWithoutFreePages) {
  (void)grant({8, 8, 8});
  EXPECT_FALSE(landing_.grant(std::vector<uint64_t>{8, 8}, kStart, {}));
  EXPECT_EQ(landing_.free_pages(), 1);
}

TEST_F(LandingTest, PagesOfAWriterThatMayStillCopyAreInQuarantine) {
  const Grant granted = grant({64, 64});
  EXPECT_TRUE(landing_.claim(granted.tag, 7));
  EXPECT_FALSE(landing_.claim(granted.tag, 8)) << "one writer";
  EXPECT_EQ(landing_.arrive_in_place({.tag = granted.tag}, 8, kStart), Answer::refused);
  landing_.expire(kStart + 1s);
  EXPECT_EQ(outcome_, Outcome::expired);
  EXPECT_FALSE(landing_.claim(granted.tag, 7));
  EXPECT_EQ(landing_.free_pages(), 2);
  EXPECT_EQ(landing_.quarantined_pages(), 2);
  landing_.writer_gone(7);
  EXPECT_EQ(landing_.free_pages(), 4);
  EXPECT_EQ(landing_.quarantined_pages(), 0);
}

TEST_F(LandingTest, AWriterThatGoesEndsItsTransfers) {
  const Grant half = grant({64, 64});
  EXPECT_TRUE(landing_.claim(half.tag, 7));
  landing_.writer_gone(7);
  EXPECT_EQ(outcome_, Outcome::failed);
  EXPECT_EQ(landing_.free_pages(), 4);

  // A complete transfer outlives its writer until it is read.
  const Grant whole = grant({2});
  EXPECT_TRUE(landing_.claim(whole.tag, 7));
  const auto bytes = filled(2, 6);
  std::copy(bytes.begin(), bytes.end(),
            landing_.memory().bytes().begin() + static_cast<long>(whole.slices[0].offset));
  EXPECT_EQ(
      landing_.arrive_in_place({.tag = whole.tag, .checksum = checksum_of(whole.tag, 0, bytes)}, 7, kStart),
      Answer::taken);
  EXPECT_EQ(outcome_, Outcome::complete);
  landing_.writer_gone(7);
  EXPECT_EQ(landing_.slice(whole, 0)[1], std::byte(6));
  landing_.release(whole.tag);
  EXPECT_EQ(landing_.free_pages(), 4);
}

}  // namespace
}  // namespace fathom::transfer
