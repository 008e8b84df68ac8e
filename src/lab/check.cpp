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
  const auto middle         = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  const double least =
      std::max(16.0 * *middle, 1e-3 * std::sqrt(squares_ / static_cast<double>(rms_.size())));
  for (const Suspect& suspect : suspects_)
    if (suspect.rms > least && finding.other_runs++ == 0) finding.first_other = suspect.first;
}

void Checker::begin(std::string_view name) {
  findings_.push_back({.output = std::string(name)});
  squares_error_ = squares_tolerance_ = squares_value_ = 0;
}

void Checker::end() {
  Finding& finding = findings_.back();
  if (finding.elements == 0) return;
  const double n        = static_cast<double>(finding.elements);
  finding.rms_error     = std::sqrt(squares_error_ / n);
  finding.rms_tolerance = std::sqrt(squares_tolerance_ / n);
  finding.rms_value     = std::sqrt(squares_value_ / n);
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

void Checker::compare(double actual, const Sum& want, double half_ulp, const void* element, int64_t bytes,
                      std::initializer_list<int64_t> index) {
  Finding& finding = findings_.back();
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
    squares_error_ += beyond * beyond;
    squares_tolerance_ += reduction * reduction;
    squares_value_ += want.value * want.value;
  }
  if (error > finding.max_error || finding.elements == 1) {
    finding.max_error = std::isfinite(error) ? error : finding.max_error;
    finding.tolerance = tolerance;
  }
  if (finite ? error <= tolerance : error == 0) return;
  if (finite && !std::isfinite(actual)) ++finding.nans;
  wrong(fmt::format("{:.9g}", actual), fmt::format("{:.9g}", want.value), element, bytes, index);
}

void Checker::compare_exact(int64_t actual, int64_t want, const void* element, int64_t bytes,
                            std::initializer_list<int64_t> index) {
  Finding& finding = findings_.back();
  ++finding.elements;
  if (actual == want) return;
  const double error = std::abs(static_cast<double>(actual) - static_cast<double>(want));
  finding.max_error  = std::max(finding.max_error, error);
  squares_error_ += error * error;
  squares_value_ += static_cast<double>(want) * static_cast<double>(want);
  wrong(std::to_string(actual), std::to_string(want), element, bytes, index);
}

void Checker::wrong(const std::string& actual, const std::string& want, const void* element, int64_t bytes,
                    std::initializer_list<int64_t> index) {
  Finding& finding     = findings_.back();
  const bool untouched = options_.is_poison && options_.is_poison(element, bytes);
  finding.poisoned += untouched;
  if (finding.wrong++ == 0)
    finding.first_wrong = fmt::format("{}({}) is {}, expected {}", finding.output, fmt::join(index, ", "),
                                      untouched ? "never written" : actual, want);
}

}  // namespace fathom::lab
