// Confidence intervals of a median that assume no distribution.
//
// A round of an experiment gives ln(t_baseline / t_variant). The exact interval from order statistics (the
// inverted sign test) assumes only independence, which a noisy machine violates: an intermittent neighbour or
// a favourable page layout affects several rounds in a row. In simulations of 20 to 400 rounds, the plain
// interval of nominal 95 % missed the true median of such series in 20 to 70 % of all trials, and more rounds
// did not help. median_interval() widens it by the correlation of the series:
//
//   1. s_i = sign(x_i - median). The sign test counts these signs, so only their correlation matters. They
//   are
//      bounded, so it is estimated as well for Cauchy noise as for Gaussian.
//   2. Variance inflation v = 1 + 2 sum of autocorrelations of s, summed by Geyer's initial monotone sequence
//      (C. J. Geyer, Practical Markov chain Monte Carlo, 1992): pairs of lags while positive, made
//      non-increasing.
//   3. Each autocorrelation about an estimated centre is low by about v/n, so over w lags v is divided by
//      1 - w/n.
//   4. n_eff = n / max(1, v); the ranks for n_eff samples, scaled to n. Negative correlation never narrows.
//
// Chosen by simulation over
//   - the closed form n (1-r) / (1+r) with the lag-1 correlation r: it misses slow correlation under white
//   noise
//     (AR(1) of 0.97 under noise of twice its size, 200 rounds: misses 42 %, this 23 %);
//   - the largest variance of batch means: it detects a sticky state later (mean 20 rounds in a state, 200
//     rounds: misses 12 %, this 5 %);
//   - the range of six batch medians: as safe, but 1.4 times as wide on independent rounds, so twice the
//   rounds;
//   - averages over Latin-square blocks: with eight variants, 40 rounds are five blocks, too few for an
//     interval.
// The cost on independent rounds: a third more width at 40 rounds, a tenth from 100 on (tested).
//
// No statistic of one series detects a state that lasts a fifth of the series or longer. With states of 20
// rounds on average, false claims of a difference beyond 2 % between equals fall below 5 % from 100 rounds
// on; with 50, from 400 on. The A/A control and fresh buffers between rounds guard against such states.
#pragma once

#include <optional>
#include <span>

namespace fathom::measure {

struct Interval {
  double median = 0, lo = 0, hi = 0;
};

// For independent samples. Absent when there are too few for the confidence (5 or fewer at 95 %).
std::optional<Interval> sign_test_interval(std::span<const double> samples, double confidence);

// The number of independent samples that would give as much information on the median as this series in time
// order: 1 <= n_eff <= n.
double effective_sample_size(std::span<const double> series);

// The interval to report, for a series in time order. Absent when the effective sample is too small.
std::optional<Interval> median_interval(std::span<const double> series, double confidence);

// The same for ratios: takes ln(t_baseline / t_variant) of each round, returns baseline time over variant
// time.
std::optional<Interval> ratio_interval(std::span<const double> log_ratios, double confidence);

}  // namespace fathom::measure
