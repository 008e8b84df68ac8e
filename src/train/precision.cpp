#include "train/precision.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "core/dtype.h"
#include "core/mxfp4_nvfp4.h"
#include "core/mxfp8.h"
#include "core/splitmix64.h"

namespace fathom::train {
namespace {

constexpr int64_t kBlock  = kNvfp4Block;
constexpr float kSmallest = std::numeric_limits<float>::min();  // of a scale: 0 / 0 were no number

float amax_of(const float* x, int64_t n) {
  float most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
  return most;
}

template <class Code>
void round_tensor(float* x, int64_t n, float amax) {
  if (!(amax > 0) || !std::isfinite(amax)) return;
  const float scale = std::max(amax / Code::max(), kSmallest);
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(Code(x[i] / scale)) * scale;
}

void round_mxfp8(std::span<float> row) {
  fp8_e4m3 values[kMxfp8Block];
  e8m0 scale[1];
  for (size_t at = 0; at < row.size(); at += kMxfp8Block) {
    const std::span block    = row.subspan(at, std::min<size_t>(kMxfp8Block, row.size() - at));
    float whole[kMxfp8Block] = {};
    std::ranges::copy(block, whole);
    encode_mxfp8(whole, values, scale);
    decode_mxfp8(values, scale, whole);
    std::copy_n(whole, block.size(), block.begin());
  }
}

// E2M1 has steps of 1/2 up to 2, of 1 up to 4 and of 2 up to 6. `draw` in [0, 1): a number between two goes
// up with the probability of its distance from the lower one.
float stochastic_e2m1(float x, float draw) {
  const float size = std::min(std::fabs(x), 6.0f), step = size < 2 ? 0.5f : size < 4 ? 1.0f : 2.0f;
  const float lower = std::floor(size / step) * step;
  return std::copysign(size - lower > draw * step ? lower + step : lower, x);
}

// The scale of a block of E2M1 numbers whose largest magnitude is amax.
float block_scale(float amax, float tensor_scale) {
  return static_cast<float>(fp8_e4m3(amax / 6 / tensor_scale)) * tensor_scale;
}

// In place, of 16 numbers: y = H diag(signs) x / 4, which keeps lengths and dot products.
void hadamard_16(float* x, uint64_t signs) {
  for (int i = 0; i < 16; ++i)
    if (signs >> i & 1) x[i] = -x[i];
  for (int half = 1; half < 16; half *= 2)
    for (int i = 0; i < 16; i += 2 * half)
      for (int j = i; j < i + half; ++j) {
        const float a = x[j], b = x[j + half];
        x[j] = a + b, x[j + half] = a - b;
      }
  for (int i = 0; i < 16; ++i) x[i] *= 0.25f;
}

}  // namespace

View<const float, 2> Rounder::over_columns(View<const float, 2> x, Operand operand,
                                           std::vector<float>& copy) {
  if (recipe_.precision == Precision::fp32) return x;
  const int64_t R = x.extent(0), C = x.extent(1);
  copy.resize(static_cast<size_t>(R * C));
  const View<float, 2> rows(copy.data(), {R, C});
  threads_.parallel_for(R, 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t c = 0; c < C; ++c) rows(r, c) = x(r, c);
  });
  round(rows, operand, false);
  return rows;
}

View<const float, 2> Rounder::over_rows(View<const float, 2> x, Operand operand, bool in_weight_gradient,
                                        std::vector<float>& copy) {
  if (recipe_.precision == Precision::fp32) return x;
  const int64_t R = x.extent(0), C = x.extent(1);
  copy.resize(static_cast<size_t>(R * C));
  const View<float, 2> columns(copy.data(), {C, R});
  threads_.parallel_for(C, 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < R; ++r)
      for (int64_t c = begin; c < end; ++c) columns(c, r) = x(r, c);
  });
  round(columns, operand, in_weight_gradient);
  return {copy.data(), {R, C}, {1, R}};
}

void Rounder::round(View<float, 2> x, Operand operand, bool in_weight_gradient) {
  const int64_t R = x.extent(0), C = x.extent(1);
  const auto by_rows = [&](const auto& f) {
    threads_.parallel_for(R, kBlock, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) f(r, std::span(&x(r, 0), static_cast<size_t>(C)));
    });
  };
  const uint64_t stream = splitmix64(seed_ + step_ * kSplitmix64Increment) + ++draws_;
  switch (recipe_.precision) {
    case Precision::fp32:
      return;
    case Precision::bf16:
      return by_rows([](int64_t, std::span<float> row) {
        for (float& number : row) number = static_cast<float>(bf16(number));
      });
    case Precision::fp8: {
      const float amax = amax_of(x.data(), x.size());
      return by_rows([&](int64_t, std::span<float> row) {
        operand == Operand::gradient ? round_tensor<fp8_e5m2>(row.data(), C, amax)
                                     : round_tensor<fp8_e4m3>(row.data(), C, amax);
      });
    }
    case Precision::mxfp8:
      return by_rows([](int64_t, std::span<float> row) { round_mxfp8(row); });
    case Precision::nvfp4:
      break;
  }
  if (in_weight_gradient && recipe_.hadamard) {
    // The same signs for both operands of a product: they follow from the step alone.
    const uint64_t signs = splitmix64(seed_ ^ step_);
    by_rows([&](int64_t, std::span<float> row) {
      for (int64_t c = 0; c + kBlock <= C; c += kBlock) hadamard_16(row.data() + c, signs);
    });
  }
  const float amax = amax_of(x.data(), x.size());
  if (!(amax > 0) || !std::isfinite(amax)) return;
  const float tensor_scale = std::max(amax / (6 * fp8_e4m3::max()), kSmallest);
  const bool square        = operand == Operand::weight && recipe_.square_blocks;
  const bool stochastic    = operand == Operand::gradient && recipe_.stochastic_rounding;
  const int64_t height     = square ? kBlock : 1;
  threads_.parallel_for(R, kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t r0 = begin; r0 < end; r0 += height)
      for (int64_t c0 = 0; c0 < C; c0 += kBlock) {
        const int64_t r1 = std::min(r0 + height, end), c1 = std::min(c0 + kBlock, C);
        float most = 0;
        for (int64_t r = r0; r < r1; ++r) most = std::max(most, amax_of(&x(r, c0), c1 - c0));
        const float scale = block_scale(most, tensor_scale);
        for (int64_t r = r0; r < r1; ++r)
          for (int64_t c = c0; c < c1; ++c) {
            float& number = x(r, c);
            if (std::isnan(number)) continue;
            if (scale == 0) {
              number = 0;
              continue;
            }
            const uint64_t bits =
                stochastic ? splitmix64(stream + static_cast<uint64_t>(r * C + c) * kSplitmix64Increment) : 0;
            number = scale * (stochastic
                                  ? stochastic_e2m1(number / scale, static_cast<float>(bits >> 40) * 0x1p-24f)
                                  : static_cast<float>(fp4_e2m1(number / scale)));
          }
      }
  });
}

}  // namespace fathom::train
