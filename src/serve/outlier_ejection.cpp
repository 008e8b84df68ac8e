#include "serve/outlier_ejection.h"

#include <algorithm>
#include <cmath>

namespace fathom::serve {
namespace {

using EjectionSeconds = std::chrono::duration<double>;

constexpr double kLeastEvidence = 0.2;  // seconds that streams were waited for
// A worker is judged by what it does now, and compared with what the others did lately.
constexpr std::chrono::milliseconds kCurrent{1'000}, kComparable{60'000};

}  // namespace

void OutlierEjection::observe(size_t worker, double seconds, int64_t tokens, TimePoint now) {
  if (worker >= observed_.size()) observed_.resize(worker + 1);
  Observed& of = observed_[worker];
  if (now < of.ejected_until) return;
  const double fade = std::exp(-(EjectionSeconds(now - of.last) / EjectionSeconds(options_.window)));
  of.seconds        = of.seconds * fade + seconds;
  of.tokens         = of.tokens * fade + static_cast<double>(tokens);
  of.last           = now;
}

bool OutlierEjection::ejected(size_t worker, TimePoint now) const {
  return worker < observed_.size() && now < observed_[worker].ejected_until;
}

std::optional<double> OutlierEjection::seconds_per_token(size_t worker, TimePoint now,
                                                         Milliseconds oldest) const {
  if (worker >= observed_.size() || ejected(worker, now)) return {};
  const Observed& of = observed_[worker];
  if (of.seconds < kLeastEvidence || now - of.last > oldest) return {};
  return of.seconds / std::max(of.tokens, 1.0);
}

std::optional<double> OutlierEjection::median_of_others(size_t worker, const std::vector<bool>& serves,
                                                        TimePoint now) const {
  std::vector<double> others;
  for (size_t w = 0; w < serves.size(); ++w)
    if (const auto one = serves[w] && w != worker ? seconds_per_token(w, now, kComparable) : std::nullopt)
      others.push_back(*one);
  if (others.empty()) return {};
  std::sort(others.begin(), others.end());
  return others[(others.size() - 1) / 2];
}

std::vector<size_t> OutlierEjection::judge(const std::vector<bool>& serves, TimePoint now) {
  int64_t serving = 0, out = 0;
  for (size_t w = 0; w < serves.size(); ++w) {
    serving += serves[w];
    out += serves[w] && ejected(w, now);
  }
  std::vector<size_t> found;
  for (size_t w = 0; w < std::min(serves.size(), observed_.size()); ++w) {
    Observed& of       = observed_[w];
    const auto own     = serves[w] ? seconds_per_token(w, now, kCurrent) : std::nullopt;
    const auto compare = median_of_others(w, serves, now);
    if (!own || !compare || *own <= options_.factor * *compare) {
      of.slow_since.reset();
      if (own && compare) of.in_a_row = 0;
      continue;
    }
    if (!of.slow_since) of.slow_since = now;
    if (now - *of.slow_since < options_.sustained || (out + 1) * 2 > serving) continue;
    auto time = options_.ejection;
    for (int i = 0; i < of.in_a_row && time < options_.longest_ejection; ++i) time *= 2;
    of = {.ejected_until = now + std::min(time, options_.longest_ejection), .in_a_row = of.in_a_row + 1};
    ++out;
    found.push_back(w);
  }
  return found;
}

}  // namespace fathom::serve
