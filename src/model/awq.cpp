#include "model/awq.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/expect.h"

namespace fathom::model {
namespace {

// s of an exponent. Its largest and smallest are s and 1 / s, so that scaled weights stay as large as they
// were.
std::vector<float> input_scales(const Calibration& calibration, double exponent) {
  constexpr double kSmallest = 1e-4;  // for inputs that are always zero
  std::vector<double> scales;
  for (int64_t k = 0; k < calibration.inputs(); ++k)
    scales.push_back(std::max(std::pow(calibration.mean_magnitude(k), exponent), kSmallest));
  if (scales.empty()) return {};
  const auto [least, largest] = std::ranges::minmax_element(scales);
  const double middle         = std::sqrt(*least * *largest);
  std::vector<float> rounded;
  for (const double scale : scales) rounded.push_back(static_cast<float>(scale / middle));
  return rounded;
}

// Rounds an output at a time and says what that costs.
class OutputRounding {
 public:
  OutputRounding(View<const float, 2> w, const Calibration& calibration, const GroupFormat& format)
      : w_(w), calibration_(calibration), format_(format), error_(static_cast<size_t>(w.extent(1))) {}

  // Rounds output n, with the grids' limits shrunk as is best for each group where `clip`. Stores it where
  // `to` is not null. Returns its mean squared error.
  double round(int64_t n, const std::vector<float>& scales, bool clip, QuantizedMatrix* to) {
    const int64_t K = w_.extent(1);
    for (int64_t first = 0; first < K; first += format_.group) {
      const int64_t count = std::min(format_.group, K - first);
      scaled_.clear();
      for (int64_t k = first; k < first + count; ++k)
        scaled_.push_back(static_cast<double>(w_(n, k)) * scales[static_cast<size_t>(k)]);
      const std::span error = std::span(error_).subspan(static_cast<size_t>(first), scaled_.size());
      GroupGrid grid        = fit_grid(scaled_, format_);
      if (clip) grid = best_grid(first, scales, error);
      set_errors(grid, first, scales, error);
      if (!to) continue;
      to->grid(n, first / format_.group) = grid;
      for (int64_t i = 0; i < count; ++i)
        to->code(n, first + i) =
            static_cast<uint8_t>(grid.encode(scaled_[static_cast<size_t>(i)], format_.bits));
    }
    return calibration_.mean_squared_error(error_);
  }

 private:
  // What the group's weights are wrong by, divided by s again.
  void set_errors(const GroupGrid& grid, int64_t first, const std::vector<float>& scales,
                  std::span<double> error) const {
    for (size_t i = 0; i < error.size(); ++i)
      error[i] = (scaled_[i] - grid.round(scaled_[i], format_.bits)) / scales[static_cast<size_t>(first) + i];
  }

  GroupGrid best_grid(int64_t first, const std::vector<float>& scales, std::span<double> error) const {
    constexpr int kFactors = 10;
    GroupGrid best;
    double least = 0;
    for (int f = 0; f < kFactors; ++f) {
      const GroupGrid grid = fit_grid(scaled_, format_, 1 - 0.05 * f);
      set_errors(grid, first, scales, error);
      const double loss = calibration_.mean_squared_error(error, first);
      if (f == 0 || loss < least) best = grid, least = loss;
    }
    return best;
  }

  const View<const float, 2> w_;
  const Calibration& calibration_;
  const GroupFormat format_;
  std::vector<double> scaled_, error_;
};

}  // namespace

Result<Awq> awq(View<const float, 2> w, const Calibration& calibration, const AwqOptions& options,
                ThreadPool& threads) {
  const int64_t N = w.extent(0);
  FATHOM_EXPECT(calibration.inputs() == w.extent(1), "the calibration is of this layer's inputs");
  FATHOM_EXPECT(options.exponents >= 1, "AWQ tries an exponent or more");
  if (const auto status = check_weights(w); !status) return status.error();
  Awq result{.matrix = QuantizedMatrix(options.format, N, w.extent(1))};

  std::vector<double> losses(static_cast<size_t>(N));
  const auto loss_of = [&](const std::vector<float>& scales, bool clip, QuantizedMatrix* to) {
    threads.parallel_for(N, 1, [&](int64_t begin, int64_t end) {
      OutputRounding rounding(w, calibration, options.format);
      for (int64_t n = begin; n < end; ++n)
        losses[static_cast<size_t>(n)] = rounding.round(n, scales, clip, to);
    });
    return std::accumulate(losses.begin(), losses.end(), 0.0);
  };

  double least = 0;
  for (int i = 0; i < options.exponents; ++i) {
    const double exponent    = static_cast<double>(i) / options.exponents;
    std::vector<float> tried = input_scales(calibration, exponent);
    const double loss        = loss_of(tried, false, nullptr);
    if (i > 0 && !(loss < least)) continue;
    least = loss, result.exponent = exponent, result.matrix.input_scale = std::move(tried);
  }
  result.loss = loss_of(std::vector<float>(result.matrix.input_scale), options.clip, &result.matrix);
  return result;
}

}  // namespace fathom::model
