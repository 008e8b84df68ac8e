#include "lab/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/splitmix64.h"

namespace fathom::lab {

void WholeRuns::add(int64_t first, const Run& differences, const Run& values) {
  const auto rms_of = [](const Run& run) {
    return std::sqrt(std::inner_product(run.begin(), run.end(), run.begin(), 0.0) / kLength);
  };
  const double rms_value = rms_of(values);
  const auto rms         = static_cast<float>(rms_of(differences));
  const auto far =
      std::count_if(differences.begin(), differences.end(), [&](double d) { return d > 0.5 * rms_value; });
  rms_.push_back(rms);
  squares_ += rms_value * rms_value;
  if (far >= kLength / 2) suspects_.push_back({first, rms});
}

void WholeRuns::judge(Finding& finding) const {
  constexpr size_t kFewestRuns = 16;
  if (suspects_.empty() || rms_.size() < kFewestRuns) return;
  std::vector<float> sorted = rms_;
  const auto two_thirds     = sorted.begin() + static_cast<std::ptrdiff_t>(2 * sorted.size() / 3);
  std::nth_element(sorted.begin(), two_thirds, sorted.end());
  const double least =
      std::max(16.0 * *two_thirds, 1e-3 * std::sqrt(squares_ / static_cast<double>(rms_.size())));
  for (const Suspect& suspect : suspects_)
    if (suspect.rms > least && finding.other_runs++ == 0) finding.first_other = suspect.first;
}

void Checker::in_parts(std::string_view name, int64_t n, ThreadPool* pool,
                       const std::function<void(int64_t first, int64_t last, Part&)>& compare) {
  constexpr int64_t kFewest = 64;  // elements that are worth waking a thread: each may need a row
  const int64_t shares      = pool && n > kFewest ? pool->threads() : 1;
  std::vector<Part> parts(static_cast<size_t>(shares), Part{options_, {.output = std::string(name)}});
  const auto compare_share = [&](int64_t share) {
    compare(n * share / shares, n * (share + 1) / shares, parts[static_cast<size_t>(share)]);
  };
  if (shares == 1)
    compare_share(0);
  else
    pool->run_shares(compare_share);

  Finding all{.output = std::string(name)};
  double squares_error = 0, squares_tolerance = 0, squares_value = 0;
  for (const Part& part : parts) {
    const Finding& of = part.finding;
    if (of.elements > 0 && (all.elements == 0 || of.max_error > all.max_error)) {
      all.max_error = of.max_error;
      all.tolerance = of.tolerance;
    }
    if (all.wrong == 0) all.first_wrong = of.first_wrong;
    all.elements += of.elements;
    all.wrong += of.wrong;
    all.poisoned += of.poisoned;
    all.nans += of.nans;
    squares_error += part.squares_error;
    squares_tolerance += part.squares_tolerance;
    squares_value += part.squares_value;
  }
  if (all.elements > 0) {
    const auto of_all = static_cast<double>(all.elements);
    all.rms_error     = std::sqrt(squares_error / of_all);
    all.rms_tolerance = std::sqrt(squares_tolerance / of_all);
    all.rms_value     = std::sqrt(squares_value / of_all);
  }
  findings_.push_back(std::move(all));
}

std::vector<int64_t> Checker::choose(int64_t size) const {
  std::vector<int64_t> flat;
  if (options_.sample <= 0 || options_.sample >= size) {
    flat.resize(static_cast<size_t>(size));
    std::iota(flat.begin(), flat.end(), int64_t{0});
    return flat;
  }
  // Edges first: incomplete work shows at the ends. Then one random element of each of equal slices, so that
  // no region larger than a slice goes unchecked.
  constexpr int64_t kEdge = 8;
  for (int64_t i = 0; i < kEdge && i < size; ++i) flat.push_back(i);
  for (int64_t i = std::max(kEdge, size - kEdge); i < size; ++i) flat.push_back(i);
  const int64_t slices = options_.sample - static_cast<int64_t>(flat.size());
  uint64_t state       = options_.seed;
  for (int64_t s = 0; s < slices; ++s) {
    const int64_t first = static_cast<int64_t>(static_cast<__int128>(size) * s / slices);
    const int64_t last  = static_cast<int64_t>(static_cast<__int128>(size) * (s + 1) / slices);
    const uint64_t z    = splitmix64(state += kSplitmix64Increment);
    flat.push_back(first +
                   static_cast<int64_t>(z % static_cast<uint64_t>(std::max<int64_t>(1, last - first))));
  }
  return flat;
}

void Checker::Part::compare(double actual, const Sum& want, double half_ulp, const void* element,
                            int64_t bytes, std::initializer_list<int64_t> index) {
  ++finding.elements;
  const double reduction =
      4 * std::sqrt(static_cast<double>(want.length)) * traits(want.accumulate).round_off * want.magnitude;
  const double tolerance = reduction + half_ulp;
  // A reference that is not finite must be matched in kind: NaN by NaN, infinity by the same infinity.
  const bool finite  = std::isfinite(want.value);
  const double error = finite                   ? std::abs(actual - want.value)
                       : std::isnan(want.value) ? (std::isnan(actual) ? 0.0 : HUGE_VAL)
                                                : (actual == want.value ? 0.0 : HUGE_VAL);
  if (finite && std::isfinite(error)) {
    // Rounding the output may cost half an ulp; the rms rule is about the accumulation alone.
    const double beyond = std::max(0.0, error - half_ulp);
    squares_error += beyond * beyond;
    squares_tolerance += reduction * reduction;
    squares_value += want.value * want.value;
  }
  if (error > finding.max_error || finding.elements == 1) {
    finding.max_error = std::isfinite(error) ? error : finding.max_error;
    finding.tolerance = tolerance;
  }
  if (finite ? error <= tolerance : error == 0) return;
  if (finite && !std::isfinite(actual)) ++finding.nans;
  wrong(fmt::format("{:.9g}", actual), fmt::format("{:.9g}", want.value), element, bytes, index);
}

void Checker::Part::compare_exact(int64_t actual, int64_t want, const void* element, int64_t bytes,
                                  std::initializer_list<int64_t> index) {
  ++finding.elements;
  if (actual == want) return;
  const double error = std::abs(static_cast<double>(actual) - static_cast<double>(want));
  finding.max_error  = std::max(finding.max_error, error);
  squares_error += error * error;
  squares_value += static_cast<double>(want) * static_cast<double>(want);
  wrong(std::to_string(actual), std::to_string(want), element, bytes, index);
}

void Checker::Part::wrong(const std::string& actual, const std::string& want, const void* element,
                          int64_t bytes, std::initializer_list<int64_t> index) {
  const bool untouched = options.is_poison && options.is_poison(element, bytes);
  finding.poisoned += untouched;
  if (finding.wrong++ == 0)
    finding.first_wrong = fmt::format("{}({}) is {}, expected {}", finding.output, fmt::join(index, ", "),
                                      untouched ? "never written" : actual, want);
}

}  // namespace fathom::lab
