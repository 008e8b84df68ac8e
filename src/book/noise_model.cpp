#include "book/noise_model.h"

namespace fathom::book {
namespace {

constexpr double kNominal = 0.05;

// SplitMix64 (Steele, Lea, Flood, 2014).
class Stream {
 public:
  explicit Stream(uint64_t seed) : state_(seed) {}

  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  // A sum of twelve uniform numbers of 16 bits: nearly normal, and never beyond 6.
  double normal() {
    int64_t sum = 0;
    for (int32_t i = 0; i < 3; ++i)
      for (uint64_t four = next(), k = 0; k < 4; ++k, four >>= 16) sum += static_cast<int64_t>(four & 0xFFFF);
    return (static_cast<double>(sum) + 6) / 65536 - 6;
  }

 private:
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z          = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z          = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

void shell_sort(double* x, int32_t n) {
  for (int32_t gap = n / 2; gap > 0; gap /= 2)
    for (int32_t i = gap; i < n; ++i) {
      const double moved = x[i];
      int32_t at         = i;
      for (; at >= gap && x[at - gap] > moved; at -= gap) x[at] = x[at - gap];
      x[at] = moved;
    }
}

double median_of_sorted(const double* x, int32_t n) { return (x[(n - 1) / 2] + x[n / 2]) / 2; }

struct Sorted {
  double a[kMostPairs], b[kMostPairs], ratio[kMostPairs];
};

void sort_all(const double* a, const double* b, int32_t n, Sorted& sorted) {
  for (int32_t i = 0; i < n; ++i) {
    sorted.a[i]     = a[i];
    sorted.b[i]     = b[i];
    sorted.ratio[i] = b[i] / a[i];
  }
  shell_sort(sorted.a, n);
  shell_sort(sorted.b, n);
  shell_sort(sorted.ratio, n);
}

struct MeanAndError {
  double mean, relative_variance;  // of the mean
};

MeanAndError mean_of(const double* x, int32_t n) {
  double mean = 0, squares = 0;
  for (int32_t i = 0; i < n; ++i) mean += x[i] / n;
  for (int32_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  return {mean, squares / (n - 1) / n / (mean * mean)};
}

Ratio ratio_of_means(const double* a, const double* b, int32_t n) {
  const MeanAndError of_a = mean_of(a, n), of_b = mean_of(b, n);
  const double va = of_a.relative_variance, vb = of_b.relative_variance, value = of_b.mean / of_a.mean;
  if (!(va + vb > 0)) return {value, value, value};
  const double degrees = (va + vb) * (va + vb) * (n - 1) / (va * va + vb * vb);
  const double half    = value * student_quantile(degrees) * __builtin_sqrt(va + vb);
  return {value, value - half, value + half};
}

double relative_error_of_median(const double* x, int32_t n, int32_t rank) {
  return (x[n - rank] - x[rank - 1]) / (2 * normal_quantile() * median_of_sorted(x, n));
}

Ratio estimate_sorted(Estimator estimator, const double* a, const double* b, int32_t n,
                      const Sorted& sorted) {
  if (n < 1) return {};
  switch (estimator) {
    case Estimator::mean:
      if (n < 2) return {.value = b[0] / a[0]};
      return ratio_of_means(a, b, n);
    case Estimator::median: {
      const int32_t rank = sign_test_rank(n);
      const double value = median_of_sorted(sorted.b, n) / median_of_sorted(sorted.a, n);
      if (rank == 0) return {.value = value};
      const double ea   = relative_error_of_median(sorted.a, n, rank),
                   eb   = relative_error_of_median(sorted.b, n, rank);
      const double half = value * normal_quantile() * __builtin_sqrt(ea * ea + eb * eb);
      return {value, value - half, value + half};
    }
    case Estimator::minimum: {
      const int32_t fastest = fastest_run_length(n);
      const double value    = sorted.b[0] / sorted.a[0];
      if (fastest == 0) return {.value = value};
      return {value, sorted.b[0] / sorted.a[fastest - 1], sorted.b[fastest - 1] / sorted.a[0]};
    }
    case Estimator::paired_ratio: {
      const int32_t rank = sign_test_rank(n);
      const double value = median_of_sorted(sorted.ratio, n);
      if (rank == 0) return {.value = value};
      return {value, sorted.ratio[rank - 1], sorted.ratio[n - rank]};
    }
  }
  return {};
}

// Trials of one lab have seeds far apart, whatever the reader's seed is.
uint64_t trial_seed(uint64_t seed, int32_t trial) {
  return (seed + 1) * 0xD1342543DE82EF95 + static_cast<uint64_t>(trial) * 0xA0761D6478BD642F;
}

void count(const Ratio& ratio, Claims& claims) {
  claims.slower += ratio.low > 1;
  claims.faster += ratio.high < 1;
}

double wilson(int32_t hits, int32_t trials, int32_t side) {
  if (trials == 0) return side < 0 ? 0 : 1;
  const double n = trials, p = hits / n, z = normal_quantile();
  const double half = z * __builtin_sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  const double edge = (p + z * z / (2 * n) + side * half) / (1 + z * z / n);
  return edge < 0 ? 0 : edge > 1 ? 1 : edge;
}

}  // namespace

void simulate(const Experiment& experiment, uint64_t seed, Runs& runs) {
  const Noise& noise = experiment.noise;
  const int32_t n    = experiment.pairs;
  Stream stream(seed);
  const double luck_a = 1 + noise.layout * stream.normal(), luck_b = 1 + noise.layout * stream.normal();
  bool slow = stream.uniform() < 0.5, b_first = false;
  int32_t done_a = 0, done_b = 0;
  for (int32_t i = 0; i < 2 * n; ++i) {
    // Every experiment draws the same numbers in the same order, so that designs see the same machine.
    const double toss = stream.uniform(), interrupted = stream.uniform(), longer = stream.uniform(),
                 z = stream.normal();
    if (stream.uniform() < 1.0 / kStateRuns) slow = !slow;
    if (i % 2 == 0) b_first = experiment.design == Design::tossed_pairs && toss < 0.5;
    const bool is_b = experiment.design == Design::a_then_b ? i >= n : (i % 2 == 1) != b_first;
    double time     = is_b ? luck_b * (1 + experiment.difference) : luck_a;
    if (n > 0) time *= 1 + noise.drift * i / (2 * n - 1);
    time *= 1 + noise.jitter * z;
    if (slow) time *= 1 + noise.clock;
    if (interrupted < noise.outliers) time *= 1 + longer;
    runs.is_b[i] = is_b;
    if (is_b)
      runs.b[done_b++] = time;
    else
      runs.a[done_a++] = time;
  }
}

Ratio estimate(Estimator estimator, const double* a, const double* b, int32_t n) {
  Sorted sorted;
  sort_all(a, b, n, sorted);
  return estimate_sorted(estimator, a, b, n, sorted);
}

int32_t sign_test_rank(int32_t n) {
  // P(fewer than k of n fair coins are heads) doubled is the probability of missing the median.
  double term = 1, below = 0;
  for (int32_t i = 0; i < n; ++i) term /= 2;
  for (int32_t k = 0; k <= n / 2; ++k) {
    if (2 * (below + term) > kNominal) return k;
    below += term;
    term *= static_cast<double>(n - k) / (k + 1);
  }
  return 0;
}

int32_t fastest_run_length(int32_t n) {
  double probability = 2;
  for (int32_t k = 1; k <= n; ++k) {
    probability *= static_cast<double>(n - k + 1) / (2 * n - k + 1);
    if (probability <= kNominal) return k;
  }
  return 0;
}

double normal_quantile() { return 1.959963984540054; }

// Fisher's expansion around the normal quantile.
double student_quantile(double degrees) {
  const double z = normal_quantile(), z2 = z * z, v = degrees;
  const double first  = z * (z2 + 1) / 4;
  const double second = z * ((5 * z2 + 16) * z2 + 3) / 96;
  const double third  = z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384;
  const double fourth = z * ((((79 * z2 + 776) * z2 + 1482) * z2 - 1920) * z2 - 945) / 92160;
  return z + (first + (second + (third + fourth / v) / v) / v) / v;
}

Claims claims(const Experiment& experiment, Estimator estimator, uint64_t seed, int32_t trials) {
  Claims all[4];
  claims_of_all(experiment, seed, trials, all);
  return all[static_cast<int32_t>(estimator)];
}

void claims_of_all(const Experiment& experiment, uint64_t seed, int32_t trials, Claims out[4]) {
  Runs runs;
  Sorted sorted;
  for (int32_t i = 0; i < 4; ++i) out[i] = {};
  for (int32_t trial = 0; trial < trials; ++trial) {
    simulate(experiment, trial_seed(seed, trial), runs);
    sort_all(runs.a, runs.b, experiment.pairs, sorted);
    for (int32_t i = 0; i < 4; ++i)
      count(estimate_sorted(static_cast<Estimator>(i), runs.a, runs.b, experiment.pairs, sorted), out[i]);
  }
}

double wilson_low(int32_t hits, int32_t trials) { return wilson(hits, trials, -1); }
double wilson_high(int32_t hits, int32_t trials) { return wilson(hits, trials, 1); }

}  // namespace fathom::book
