#include "model/unembedding_screen.h"

#include <algorithm>
#include <cmath>

#include "core/gumbel.h"
#include "core/int8_group.h"

namespace fathom::model {
namespace {

// For the rounding of the norms, of the sums of both products and of bounds: with 2880 columns sums are off
// by less than 2^-14 of the product of the norms.
constexpr double kRounding = 0x1p-12, kMore = 1.001;

// |x| and |x - x~|, groups of 32 with a scale of amax / 127.
struct Norms {
  double of_x, of_error;
};
Norms norms_of(std::span<const float> x) {
  double squares = 0, errors = 0;
  for (size_t first = 0; first < x.size(); first += static_cast<size_t>(kInt8Group)) {
    const auto group = x.subspan(first, std::min(static_cast<size_t>(kInt8Group), x.size() - first));
    float most       = 0;
    for (const float number : group) most = std::max(most, std::abs(number));
    const float scale = most / 127;
    for (const float number : group) {
      const float value = scale > 0 ? std::clamp(std::nearbyint(number / scale), -127.0f, 127.0f) : 0;
      const double off  = static_cast<double>(number) - static_cast<double>(value) * scale;
      squares += static_cast<double>(number) * number;
      errors += off * off;
    }
  }
  return {std::sqrt(squares), std::sqrt(errors)};
}

}  // namespace

UnembeddingScreen::UnembeddingScreen(View<const bf16, 2> w, ThreadPool& threads)
    : rows_(w.extent(0)),
      depth_(w.extent(1)),
      values_(rows_ * depth_),
      scales_(rows_ * int8_groups(depth_)),
      errors_(rows_),
      norms_(rows_),
      lower_(rows_),
      upper_(rows_) {
  threads.parallel_for(rows_, 256, [&](int64_t begin, int64_t end) {
    const auto H = static_cast<size_t>(depth_), groups = static_cast<size_t>(int8_groups(depth_));
    std::vector<float> row(H), decoded(H);
    for (int64_t v = begin; v < end; ++v) {
      for (size_t k = 0; k < H; ++k) row[k] = static_cast<float>(w(v, static_cast<int64_t>(k)));
      const std::span values(values_.data() + v * depth_, H);
      const std::span scales(scales_.data() + v * int8_groups(depth_), groups);
      encode_int8(row, values, scales);
      decode_int8(values, scales, decoded);
      double errors = 0, squares = 0;
      for (size_t k = 0; k < H; ++k) {
        const double off = static_cast<double>(row[k]) - static_cast<double>(decoded[k]);
        errors += off * off;
        squares += static_cast<double>(decoded[k]) * static_cast<double>(decoded[k]);
      }
      errors_.data()[v] = static_cast<float>(std::sqrt(errors) * kMore);
      norms_.data()[v]  = static_cast<float>(std::sqrt(squares) * kMore);
    }
  });
}

kernels::Int8Weights UnembeddingScreen::copy() const {
  return {View<const int8_t, 2>(values_.data(), {rows_, depth_}),
          View<const bf16, 2>(scales_.data(), {rows_, int8_groups(depth_)})};
}

int64_t UnembeddingScreen::bytes() const {
  return values_.size() + 2 * scales_.size() +
         4 * (errors_.size() + norms_.size() + lower_.size() + upper_.size());
}

bool UnembeddingScreen::candidates(std::span<const float> x, std::span<const float> y, const DrawRule& rule,
                                   std::vector<int64_t>& ids) {
  constexpr double kLeastTemperature = 1e-6;  // below it sums lose what bounds need
  if (rule.temperature > 0 && rule.temperature < kLeastTemperature) return false;
  const auto [norm, error] = norms_of(x);
  const auto by_error      = static_cast<float>(norm * kMore),
             by_norm       = static_cast<float>((error + kRounding * norm) * kMore);
  float most_lower = -INFINITY, check = 0;
  for (int64_t v = 0; v < rows_; ++v) {
    const float b    = errors_.data()[v] * by_error + norms_.data()[v] * by_norm;
    lower_.data()[v] = y[static_cast<size_t>(v)] - b;
    upper_.data()[v] = y[static_cast<size_t>(v)] + b;
    most_lower       = std::max(most_lower, lower_.data()[v]);
    check += (upper_.data()[v] - lower_.data()[v]) * 0;  // NaN where one is not finite
  }
  if (!(check == 0)) return false;
  ids.clear();
  if (rule.temperature == 0) {
    for (int64_t v = 0; v < rows_; ++v)
      if (upper_.data()[v] >= most_lower) ids.push_back(v);
    return true;
  }
  const std::span<const float> lower(lower_.data(), y.size()), upper(upper_.data(), y.size());
  const int64_t best = gumbel_argmax(lower, rule.temperature, rule.seed, rule.position);
  const double sum   = static_cast<double>(lower[static_cast<size_t>(best)]) / rule.temperature +
                     gumbel(rule.seed, rule.position, best);
  gumbel_at_least(upper, rule.temperature, rule.seed, rule.position, sum - 1e-9 * (1 + std::abs(sum)), ids);
  return true;
}

}  // namespace fathom::model
