// How an output is compared with its reference. No experiment states a tolerance: it follows from the length
// of the reduction, the unit round-off of its accumulation and the magnitude of the terms (Higham, Accuracy
// and Stability of Numerical Algorithms, §4.2, with the statistical sqrt(K) in place of K).
//
//   every error   <= 4 sqrt(K) u sum|a b|  +  half an ulp of the output type
//   rms of errors <= a quarter of the rms of those bounds (from 64 elements on)
//
// A reference that returns a plain double or integer means that data only moves: the comparison is exact
// after rounding to the output type.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/dtype.h"
#include "core/thread_pool.h"
#include "core/view.h"

namespace fathom::lab {

// A reference value that an implementation reaches by rounded operations.
struct Sum {
  double value     = 0;
  double magnitude = 0;            // sum|a b|; |value| times its condition for a function
  int64_t length   = 1;            // K: how many roundings a competent implementation makes in a row
  DType accumulate = DType::fp32;  // gives u
};

// The result of comparing one output.
struct Finding {
  std::string output;    // its name
  int64_t elements = 0;  // compared
  int64_t wrong    = 0;
  int64_t poisoned = 0;  // wrong because never written
  int64_t nans     = 0;  // wrong because NaN or infinite where the reference is finite
  double max_error = 0;
  double tolerance = 0;  // at the element with the largest error, in the output's unit
  double rms_error = 0, rms_tolerance = 0, rms_value = 0;
  std::string first_wrong;  // "out(3, 5) is 1.25, expected 1.5"
  // Of a comparison of whole outputs: runs of 32 elements that hold other values, not the same ones rounded
  // differently, and the element where the first of them begins.
  int64_t other_runs = 0, first_other = 0;

  bool ok() const { return wrong == 0 && !rms_failed(); }
  bool rms_failed() const { return elements >= 64 && rms_error > 0.25 * rms_tolerance; }
};

// Finds a wrong tile in a whole output. The tolerance of an element covers the worst rounding, which may be
// larger than the values; but rounding differs everywhere a little, and a wrong tile in a few places a lot. A
// run of elements counts as another answer where at least half of them differ by more than half of the run's
// rms value, and the run differs 16 times as much as two of three runs do, and by a thousandth of the
// output's rms value. Where a third of an output or more is unlike, that is how the variant computes (half of
// its rows in another precision), and the reference judges it, whose sample cannot miss as much.
class WholeRuns {
 public:
  static constexpr int64_t kLength = 32;  // an unaligned tile of 64 x 64 covers whole runs
  using Run                        = std::array<double, kLength>;
  void add(int64_t first, const Run& differences, const Run& values);
  void judge(Finding& finding) const;

 private:
  struct Suspect {
    int64_t first;
    float rms;
  };
  std::vector<float> rms_;  // of the differences, of each run
  std::vector<Suspect> suspects_;
  double squares_ = 0;  // of the runs' rms values
};

// The argument of an experiment's `check`. The harness decides which elements are compared.
class Checker {
 public:
  struct Options {
    int64_t sample = 0;  // elements per output, edges among them; 0: all
    uint64_t seed  = 0;
    std::function<bool(const void*, int64_t)> is_poison;
    // Where set, whole outputs are compared with another variant's outputs instead of the reference. Takes
    // the first element of an output, returns the first of the other variant's.
    std::function<const void*(const void*)> twin;
    ThreadPool* pool = nullptr;  // for references that threads may compute; null: the caller alone
  };
  explicit Checker(Options options) : options_(std::move(options)) {}

  // `expected(i, j, ...)` returns the reference for one element: a Sum, a double, or an integer. It is called
  // in the order of elements, and may keep what it computed for a row.
  template <class T, int Rank, class F>
  void values(std::string_view name, View<T, Rank> out, F&& expected) {
    compare_with<T, Rank>(name, out, nullptr, [&expected]() -> F& { return expected; });
  }
  // The same by the threads of Options::pool, each with a copy of `expected` and a range of elements in
  // order.
  template <class T, int Rank, class F>
  void values_in_parallel(std::string_view name, View<T, Rank> out, const F& expected) {
    compare_with<T, Rank>(name, out, options_.pool, [&expected] { return expected; });
  }

  const std::vector<Finding>& findings() const { return findings_; }

 private:
  // What a range of elements showed.
  struct Part {
    const Options& options;
    Finding finding;
    double squares_error = 0, squares_tolerance = 0, squares_value = 0;
    void compare(double actual, const Sum& want, double half_ulp, const void* element, int64_t bytes,
                 std::initializer_list<int64_t> index);
    void compare_exact(int64_t actual, int64_t want, const void* element, int64_t bytes,
                       std::initializer_list<int64_t> index);
    void wrong(const std::string& actual, const std::string& want, const void* element, int64_t bytes,
               std::initializer_list<int64_t> index);
  };

  // `copy` returns what a thread asks for the reference.
  template <class T, int Rank, class Copy>
  void compare_with(std::string_view name, View<T, Rank> out, ThreadPool* pool, const Copy& copy) {
    if (options_.twin) {
      findings_.push_back({.output = std::string(name)});
      compare_whole(out.data(), static_cast<const T*>(options_.twin(out.data())), out.size());
      return;
    }
    const std::vector<int64_t> chosen = choose(out.size());
    in_parts(name, static_cast<int64_t>(chosen.size()), pool, [&](int64_t first, int64_t last, Part& part) {
      auto&& expected = copy();
      for (int64_t c = first; c < last; ++c) {
        std::array<int64_t, Rank> index;
        int64_t rest = chosen[static_cast<size_t>(c)];
        for (int r = Rank - 1; r >= 0; --r) {
          index[r] = rest % out.extent(r);
          rest /= out.extent(r);
        }
        std::apply(
            [&](auto... i) {
              const T& actual = out(i...);
              const auto want = expected(i...);
              using Want      = std::remove_cvref_t<decltype(want)>;
              if constexpr (std::is_integral_v<Want>) {
                part.compare_exact(static_cast<int64_t>(actual), static_cast<int64_t>(want), &actual,
                                   sizeof(T), {i...});
              } else if constexpr (std::is_same_v<Want, Sum>) {
                part.compare(to_double(actual), want, half_ulp<std::remove_const_t<T>>(want.value), &actual,
                             sizeof(T), {i...});
              } else {
                const double rounded = to_double(from_double<std::remove_const_t<T>>(want));
                part.compare(to_double(actual), Sum{rounded, 0, 0}, 0, &actual, sizeof(T), {i...});
              }
            },
            index);
      }
    });
  }
  // Compares elements 0 .. n of those chosen, in one range or in one for each thread, and adds the finding.
  void in_parts(std::string_view name, int64_t n, ThreadPool* pool,
                const std::function<void(int64_t first, int64_t last, Part&)>& compare);

  template <class T>
  void compare_whole(const T* ours, const T* theirs, int64_t n) {
    Finding& finding = findings_.back();
    finding.elements = n;
    WholeRuns runs;
    for (int64_t first = 0; first < n; first += WholeRuns::kLength) {
      const int64_t length = std::min(WholeRuns::kLength, n - first);
      std::array<double, WholeRuns::kLength> differences{}, values{};
      for (int64_t k = 0; k < length; ++k) {
        const T &our = ours[first + k], &their = theirs[first + k];
        values[k] = to_double(their);
        if (std::memcmp(&our, &their, sizeof(T)) == 0) continue;
        ++finding.wrong;
        differences[k] = std::abs(to_double(our) - values[k]);
        if (differences[k] != differences[k]) ++finding.nans;
        if (differences[k] > finding.max_error) finding.max_error = differences[k];
      }
      if (length == WholeRuns::kLength) runs.add(first, differences, values);
    }
    runs.judge(finding);
  }
  template <class T>
  static double to_double(T x) {
    if constexpr (std::is_arithmetic_v<T>)
      return static_cast<double>(x);
    else
      return static_cast<double>(static_cast<float>(x));
  }
  template <class T>
  static T from_double(double x) {
    if constexpr (std::is_arithmetic_v<T>)
      return static_cast<T>(x);
    else
      return T(static_cast<float>(x));
  }
  template <class T>
  static double half_ulp(double x) {
    if constexpr (std::is_integral_v<T>)
      return 0.5;
    else
      return traits(dtype_of<T>).round_off * std::abs(x);
  }

  std::vector<int64_t> choose(int64_t size) const;

  Options options_;
  std::vector<Finding> findings_;
};

}  // namespace fathom::lab
