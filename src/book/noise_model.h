// Simulated benchmarks: noisy times of two variants, the order in which they run, estimators of their ratio
// with intervals, and how often an interval claims a difference that is not there. The model of the book's
// noise lab; freestanding, for it is compiled to WebAssembly too.
#pragma once

#include <stdint.h>

namespace fathom::book {

inline constexpr int32_t kMostPairs = 200;

// Shares of the undisturbed time.
struct Noise {
  double jitter   = 0.01;  // standard deviation of each run
  double drift    = 0;     // how much slower the last run is than the first; linear in between
  double outliers = 0;     // share of runs that are interrupted; each takes up to twice as long
  double clock = 0;  // how much slower the second of two clock states is; a state lasts kStateRuns on average
  double layout = 0;  // standard deviation of a variant's luck, the same for all its runs in an experiment
};

inline constexpr int32_t kStateRuns = 20;

enum class Design : int32_t {
  a_then_b,
  alternating,
  tossed_pairs
};  // AA..BB..; ABAB..; the order of each pair tossed

struct Experiment {
  Noise noise;
  Design design     = Design::a_then_b;
  int32_t pairs     = 30;  // runs of each variant, at most kMostPairs
  double difference = 0;   // B's true time is 1 + difference of A's
};

// The times of one experiment; equal seeds give equal times.
struct Runs {
  double a[kMostPairs], b[kMostPairs];
  bool is_b[2 * kMostPairs];  // in order of time
};
void simulate(const Experiment& experiment, uint64_t seed, Runs& runs);

enum class Estimator : int32_t { mean, median, minimum, paired_ratio };

// B's time as a multiple of A's, with an interval of nominal 95 %.
struct Ratio {
  double value = 1;
  double low   = 0;
  double high  = __builtin_inf();  // low 0 and high infinity: too few runs for an interval
};

// mean          ratio of means; Welch's t interval by the delta method
// median        ratio of medians; each one's standard error from its sign-test interval (McKean and Schrader,
// 1984) minimum       ratio of minima; 1 is outside when the k fastest runs of all are of one variant. For
// runs in any
//               order equally likely that has at most 5 % probability.
// paired_ratio  median of the ratios of pairs; the sign test's interval
Ratio estimate(Estimator estimator, const double* a, const double* b, int32_t n);

// Rank k, from 1, such that the k-th smallest and the k-th largest of n independent values enclose their
// median with at least 95 %; 0 when n is below 6.
int32_t sign_test_rank(int32_t n);

// The smallest k for which the k fastest of n + n runs are of one variant with at most 5 %; 0 when no k does.
int32_t fastest_run_length(int32_t n);

double student_quantile(double degrees);  // at 0.975
double normal_quantile();                 // at 0.975

// The experiments among `trials` of which the interval lies above 1, and below.
struct Claims {
  int32_t slower = 0, faster = 0;
};
Claims claims(const Experiment& experiment, Estimator estimator, uint64_t seed, int32_t trials);

// The same of all four estimators from one simulation of each trial.
void claims_of_all(const Experiment& experiment, uint64_t seed, int32_t trials, Claims out[4]);

// Wilson's 95 % interval of a probability.
double wilson_low(int32_t hits, int32_t trials);
double wilson_high(int32_t hits, int32_t trials);

}  // namespace fathom::book
