#include "measure/verdict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/expect.h"
#include "measure/synthetic_rounds.h"

namespace fathom::measure {
namespace {

constexpr int kVerdictTrials = 1000;

TEST(Verdict, FollowsItsDefinition) {
  EXPECT_EQ(judge(Interval{1.05, 1.021, 1.08}), Verdict::faster);
  EXPECT_EQ(judge(Interval{1.05, 1.02, 1.08}),
            Verdict::inconclusive);                              // touching the margin is not beyond it
  EXPECT_EQ(judge(Interval{0.95, 0.9, 0.98}), Verdict::slower);  // 1/1.02 = 0.98039
  EXPECT_EQ(judge(Interval{0.95, 0.9, 0.981}), Verdict::inconclusive);
  EXPECT_EQ(judge(Interval{1, 0.981, 1.02}), Verdict::same);
  EXPECT_EQ(judge(Interval{1, 0.98, 1.01}), Verdict::inconclusive);
  EXPECT_EQ(judge(Interval{1, 0.5, 2}), Verdict::inconclusive);
  EXPECT_EQ(judge(Interval{1.001, 1.0005, 1.002}, 0), Verdict::faster);
  EXPECT_EQ(judge(std::nullopt), Verdict::inconclusive);
}

TEST(Verdict, RefusesWhatIsNoInterval) {
  EXPECT_THROW(judge(Interval{1, 1.1, 0.9}), ContractError);
  EXPECT_THROW(judge(Interval{1, 0, 1}), ContractError);
  EXPECT_THROW(judge(Interval{1, std::nan(""), 1}), ContractError);
  EXPECT_THROW(judge(Interval{1, 1, std::numeric_limits<double>::infinity()}), ContractError);
  EXPECT_THROW(judge(Interval{1, 1, 1}, -0.01), ContractError);
}

TEST(Verdict, Names) {
  EXPECT_EQ(name(Verdict::faster), "FASTER");
  EXPECT_EQ(name(Verdict::slower), "SLOWER");
  EXPECT_EQ(name(Verdict::same), "SAME");
  EXPECT_EQ(name(Verdict::inconclusive), "INCONCLUSIVE");
  EXPECT_EQ(name(Verdict::invalid), "INVALID");
}

// Multiplying a ratio by more than 1 must never bring its verdict nearer to SLOWER; the steps of one interval
// are SLOWER, INCONCLUSIVE, (SAME, INCONCLUSIVE,) FASTER. Catches exchanged bounds and margins with a hole or
// overlap.
TEST(Verdict, IsMonotoneInTheRatio) {
  const auto rank = [](Verdict v) { return v == Verdict::slower ? -1 : v == Verdict::faster ? 1 : 0; };
  Noisy noisy(1);
  for (int trial = 0; trial < 200; ++trial) {
    const double below = 0.08 * noisy.uniform(), above = 0.08 * noisy.uniform();
    const double margin = 0.05 * noisy.uniform();
    int previous = -1, changes = 0;
    Verdict last = Verdict::slower;
    for (double log = -0.3; log <= 0.3; log += 0.0005) {
      const Verdict verdict =
          judge(Interval{std::exp(log), std::exp(log - below), std::exp(log + above)}, margin);
      EXPECT_GE(rank(verdict), previous);
      previous = rank(verdict);
      changes += verdict != last;
      last = verdict;
    }
    EXPECT_EQ(last, Verdict::faster);
    EXPECT_TRUE(changes <= 4) << changes;
  }
}

// Exchanging baseline and variant exchanges FASTER and SLOWER. Catches margins of 1-m and 1+m.
TEST(Verdict, IsSymmetricInLogarithms) {
  const auto mirrored = [](Verdict v) {
    return v == Verdict::faster ? Verdict::slower : v == Verdict::slower ? Verdict::faster : v;
  };
  Noisy noisy(2);
  for (int trial = 0; trial < 2000; ++trial) {
    const double lo = 0.9 + 0.2 * noisy.uniform(), hi = lo * (1 + 0.1 * noisy.uniform());
    EXPECT_EQ(judge(Interval{1, 1 / hi, 1 / lo}), mirrored(judge(Interval{1, lo, hi})));
  }
}

// At most 5 % of experiments call equal variants unequal, on quiet, heavy-tailed, bimodal and drifting
// machines alike, from the minimum of 20 rounds on. Catches a return to the plain interval (sticky, 20
// rounds: 9 %; drifting 0.05: 26 %).
TEST(Verdict, FalseClaimsBetweenEquals) {
  struct Case {
    Machine machine;
    double pace;
    std::vector<int64_t> rounds;
  };
  const Case cases[] = {{Machine::quiet, 1, {20, 40, 200}},
                        {Machine::heavy_tailed, 1, {20, 40, 200}},
                        {Machine::spiky, 1, {20, 40, 200}},
                        {Machine::bimodal, 1, {20, 40, 200}},
                        {Machine::walking, 1, {20, 40, 200}},
                        {Machine::ramping, 1, {20, 40, 200}},
                        {Machine::drifting, 0.4, {20, 40, 200}},
                        {Machine::drifting, 0.1, {20, 40, 200}},
                        {Machine::drifting, 0.05, {20, 40, 200}},
                        {Machine::drifting_under_noise, 0.1, {20, 40, 200}},
                        {Machine::sticky, 0.2, {20, 40, 200}},
                        {Machine::sticky, 0.05, {200, 400}},  // 20 rounds in a state: see interval.h
                        {Machine::sticky, 0.02, {400}}};
  for (const Case& c : cases)
    for (int64_t rounds : c.rounds) {
      Noisy noisy(7);
      int claims = 0;
      for (int trial = 0; trial < kVerdictTrials; ++trial) {
        const Verdict verdict =
            judge(ratio_interval(synthetic_rounds(c.machine, rounds, noisy, c.pace), 0.95));
        claims += verdict == Verdict::faster || verdict == Verdict::slower;
      }
      EXPECT_LE(claims, 0.05 * kVerdictTrials) << name(c.machine) << " " << c.pace << " " << rounds;
    }
}

// Power: a real 5 % must be detected in both directions, and never with the wrong sign.
TEST(Verdict, PowerForFivePercent) {
  for (Machine machine : {Machine::quiet, Machine::heavy_tailed, Machine::spiky, Machine::walking})
    for (int64_t rounds : {40, 80, 200})
      for (const Verdict truth : {Verdict::faster, Verdict::slower}) {
        const double shift = truth == Verdict::faster ? std::log(1.05) : -std::log(1.05);
        Noisy noisy(8);
        int found = 0, opposite = 0;
        for (int trial = 0; trial < kVerdictTrials; ++trial) {
          const Verdict verdict =
              judge(ratio_interval(synthetic_rounds(machine, rounds, noisy, 1, shift), 0.95));
          found += verdict == truth;
          opposite += verdict != truth && (verdict == Verdict::faster || verdict == Verdict::slower);
        }
        EXPECT_GE(found, 0.9 * kVerdictTrials) << name(machine) << " " << rounds << " " << name(truth);
        EXPECT_EQ(opposite, 0) << name(machine) << " " << rounds << " " << name(truth);
      }
}

// SAME must be reachable: enough rounds of equal variants end there.
TEST(Verdict, EqualsAreShownToBeTheSame) {
  Noisy noisy(9);
  int same = 0;
  for (int trial = 0; trial < kVerdictTrials; ++trial)
    same += judge(ratio_interval(synthetic_rounds(Machine::quiet, 200, noisy), 0.95)) == Verdict::same;
  EXPECT_GE(same, 0.95 * kVerdictTrials);
}

TEST(Verdict, ControlIsAdvisoryWhenItExcludesOne) {
  EXPECT_FALSE(aa_is_advisory(Interval{1, 0.99, 1.01}));
  EXPECT_FALSE(aa_is_advisory(Interval{1, 1, 1}));
  EXPECT_TRUE(aa_is_advisory(Interval{1.01, 1.0001, 1.02}));
  EXPECT_TRUE(aa_is_advisory(Interval{0.99, 0.98, 0.9999}));
  EXPECT_TRUE(aa_is_advisory(std::nullopt));
}

// Catches a control at the wrong confidence, which marks too many runs advisory, and one that misses bias.
TEST(Verdict, ControlCondemnsBiasAndLittleElse) {
  Noisy noisy(10);
  int condemned = 0, bias_seen = 0;
  for (int trial = 0; trial < kVerdictTrials; ++trial) {
    condemned += aa_is_advisory(ratio_interval(synthetic_rounds(Machine::quiet, 100, noisy), kAaConfidence));
    bias_seen += aa_is_advisory(
        ratio_interval(synthetic_rounds(Machine::quiet, 100, noisy, 1, std::log(1.03)), kAaConfidence));
  }
  EXPECT_LE(condemned, allowed(0.01, kVerdictTrials) * kVerdictTrials);
  EXPECT_GE(bias_seen, 0.99 * kVerdictTrials);
}

}  // namespace
}  // namespace fathom::measure
