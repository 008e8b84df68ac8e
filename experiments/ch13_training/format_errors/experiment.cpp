// A format has few codes; a scale decides which numbers they stand for. How much is lost depends on both, and
// on how the numbers of a group are distributed: a code cannot be spent on a number that is far below the
// largest.
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "core/rng.h"
#include "fake_quantize.h"
#include "lab/metric.h"

namespace fathom::lab::format_errors {
namespace {

using namespace kernels;

void fill(bf16* to, int64_t count, uint64_t seed, int64_t columns) {
  const int64_t n = count / kDistributionCount;  // of a matrix
  fill_normal(to, n, seed, 0, 1);
  fill_uniform(to + n, n, seed + 1, -1, 1);
  fill_normal(to + 2 * n, n, seed + 2, 0, 1);
  for (int64_t i = 0; i < n; ++i)
    if (i % columns % kOutlierStride == 5)
      to[2 * n + i] = bf16(kOutlierFactor * static_cast<float>(to[2 * n + i]));
  std::vector<float> logarithms(static_cast<size_t>(n)), signs(static_cast<size_t>(n));
  fill_normal(logarithms.data(), n, seed + 3, 0, 2);
  fill_uniform(signs.data(), n, seed + 4, -1, 1);
  for (int64_t i = 0; i < n; ++i)
    to[3 * n + i] =
        bf16(std::copysign(std::exp2(logarithms[static_cast<size_t>(i)]), signs[static_cast<size_t>(i)]));
}

// The magnitudes that codes stand for, in the order of codes.
template <class Format>
std::vector<double> code_magnitudes() {
  std::vector<double> magnitudes;
  for (uint32_t code = 0; code < (kPacked<Format> ? 8 : 128); ++code) {
    if constexpr (kPacked<Format>) {
      magnitudes.push_back(static_cast<float>(fp4_e2m1::from_bits(code)));
    } else if constexpr (std::is_same_v<CodeOf<Format>, int8_t>) {
      magnitudes.push_back(code);
    } else {
      const float value = static_cast<float>(CodeOf<Format>::from_bits(code));
      if (std::isfinite(value)) magnitudes.push_back(value);
    }
  }
  return magnitudes;
}

// The number nearest to x; of two, that with the even code.
double nearest(const std::vector<double>& magnitudes, double x) {
  const double magnitude = std::min(std::abs(x), magnitudes.back());
  const auto above       = std::lower_bound(magnitudes.begin(), magnitudes.end(), magnitude);
  if (above == magnitudes.begin()) return 0;
  const double up = *above - magnitude, down = magnitude - *(above - 1);
  const bool even = (above - magnitudes.begin()) % 2 == 0;
  return std::copysign(up < down || (up == down && even) ? *above : *(above - 1), x);
}

double amax(View<const bf16, 2> x, int64_t row, int64_t first, int64_t end) {
  double largest = 0;
  for (int64_t c = first; c < end; ++c)
    largest = std::max(largest, std::abs(static_cast<double>(static_cast<float>(x(row, c)))));
  return largest;
}

// The definitions of the formats, by search. Scales are fp32, as the formats say, and so is x / unit.
template <class Format>
class Definition {
 public:
  explicit Definition(View<const bf16, 2> x) : x_(x) {
    double largest = 0;
    if constexpr (kScaleIsGiven<Format>)
      for (int64_t r = 0; r < x.extent(0); ++r) largest = std::max(largest, amax(x, r, 0, x.extent(1)));
    of_tensor_ = scale(largest, kTwoLevels ? magnitudes_.back() * fp8_e4m3::max() : magnitudes_.back());
  }
  double operator()(int64_t r, int64_t c) const {
    int64_t group = x_.extent(1);
    if constexpr (kInBlocks<Format>) group = Format::kBlock;
    const int64_t first  = c / group * group;
    const float of_group = scale_of_group(amax(x_, r, first, std::min(first + group, x_.extent(1))));
    const float unit     = kTwoLevels ? of_group * of_tensor_ : of_group;
    if (unit == 0) return 0;
    const float code = static_cast<float>(nearest(magnitudes_, static_cast<float>(x_(r, c)) / unit));
    return kTwoLevels ? code * of_group * of_tensor_ : code * of_group;
  }

 private:
  static constexpr bool kTwoLevels = std::is_same_v<Format, Nvfp4>;

  static float scale(double amax, double largest) {
    return std::max(static_cast<float>(amax / largest), kSmallestScale);
  }
  float scale_of_group(double amax) const {
    if constexpr (kTwoLevels)
      return static_cast<float>(nearest(scales_, static_cast<float>(amax / 6) / of_tensor_));
    if constexpr (std::is_same_v<Format, Mxfp4>)  // 2^(floor(log2(amax)) - 2)
      return std::ldexp(1.0f, amax == 0 ? -127 : std::max(std::ilogb(amax) - 2, -127));
    if constexpr (std::is_same_v<Format, Mxfp8>) {  // the smallest power of two that saturates nothing
      int exponent = -127;
      while (std::ldexp(448.0, exponent) < amax) ++exponent;
      return std::ldexp(1.0f, exponent);
    }
    return kScaleIsGiven<Format> ? of_tensor_ : scale(amax, magnitudes_.back());
  }

  View<const bf16, 2> x_;
  std::vector<double> magnitudes_ = code_magnitudes<Format>();
  std::vector<double> scales_     = code_magnitudes<TensorScaled<fp8_e4m3>>();  // of NVFP4
  float of_tensor_;
};

}  // namespace

FakeQuantize::FakeQuantize(const Point& at, Arena& arena)
    : format(number_format(at.text("format"))),
      x(arena.input<bf16>({kDistributionCount, at["rows"], at["columns"]},
                          generate<bf16>([columns = at["columns"]](bf16* to, int64_t n, uint64_t seed) {
                            fill(to, n, seed, columns);
                          }))),
      out(arena.output<bf16>({kDistributionCount, at["rows"], at["columns"]})) {}

Cost FakeQuantize::cost() const { return {.read = x.bytes(), .written = out.bytes()}; }

void FakeQuantize::check(Checker& checker) const {
  with_format(format, [&]<class Format>() {
    std::vector<Definition<Format>> of;
    for (int64_t t = 0; t < kDistributionCount; ++t) of.emplace_back(matrix(t));
    checker.values("out", out,
                   [&](int64_t t, int64_t r, int64_t c) { return of[static_cast<size_t>(t)](r, c); });
  });
}

// Of each distribution: the signal-to-noise ratio, the largest error as a share of the largest number, and
// the share of numbers that have become 0.
void FakeQuantize::metrics(CallMetrics& metrics) const {
  for (int64_t t = 0; t < kDistributionCount; ++t) {
    const View<const bf16, 2> before = matrix(t);
    const View<const bf16, 2> after  = rounded(t);
    double signal = 0, noise = 0, largest = 0, largest_error = 0;
    int64_t numbers = 0, zeros = 0;
    for (int64_t r = 0; r < before.extent(0); ++r)
      for (int64_t c = 0; c < before.extent(1); ++c) {
        const double was = static_cast<float>(before(r, c)), is = static_cast<float>(after(r, c));
        signal += was * was;
        noise += (is - was) * (is - was);
        largest       = std::max(largest, std::abs(was));
        largest_error = std::max(largest_error, std::abs(is - was));
        numbers += was != 0;
        zeros += was != 0 && is == 0;
      }
    if (noise == 0 || numbers == 0) continue;
    const std::string name          = kDistributions[t];
    metrics["snr_db_" + name]       = {10 * std::log10(signal / noise), "higher"};
    metrics["max_error_" + name]    = {largest_error / largest, "lower"};
    metrics["zeroed_share_" + name] = {static_cast<double>(zeros) / static_cast<double>(numbers), "lower"};
  }
}

namespace {

const std::vector<Value> kFormats(std::begin(kNumberFormatNames), std::end(kNumberFormatNames));

const Experiment<FakeQuantize> format_errors{
    .question =
        "How far are numbers from what FP8, INT8, MXFP8, MXFP4 and NVFP4 leave of them, by the numbers' "
        "distribution and by how many share a scale?",
    .limit = Limit::memory,
    .axes  = {{"format",
               {"nvfp4", "mxfp4", "mxfp8", "e4m3_tensor", "e5m2_tensor", "e4m3_row", "int8_row", "e4m3_block",
                "int8_block"}},
              {"rows", {128}},
              {"columns", {2048}}},
    // Around the blocks of 16, 32 and 128.
    .check_at = {{"format", kFormats},
                 {"rows", {0, 1, 3}},
                 {"columns", {1, 15, 17, 31, 33, 127, 128, 129, 1009}}},
    .variants =
        {
            {.id         = "codec",
             .launch     = codec,
             .techniques = {"fp8", "block_scaling"},
             .idea       = "the plain codec: a number to its code, the code to its number",
             .prediction = predict::nothing()},
            {.id         = "rounded_in_fp32",
             .launch     = rounded_in_fp32,
             .techniques = {"fp8", "block_scaling", "simd"},
             .idea       = "a float is rounded to the format's steps by adding 1.5 * 2^23 of them",
             .prediction = predict::ratio_at_least(8)},
        },
    .catalog = {"quant-002", "quant-005", "quant-007"},
};
FATHOM_REGISTER(format_errors);

}  // namespace
}  // namespace fathom::lab::format_errors
