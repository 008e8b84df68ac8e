// out(t, n) = sum_k x(t, k) w(n, k)      T tokens, K inputs, N outputs; bf16 in and out
//
// x comes anew at every call, as activations do, and has outliers: kOutliers of its channels are `outlier`
// times as large in each 64th token. The weights stay, in bf16 and quantised in three ways. A variant that
// quantises x chooses a recipe for its scales (kernels/quant/fp8_recipe.h).
#pragma once

#include <functional>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/quant/formats.h"
#include "kernels/quant/fp8_recipe.h"
#include "lab/problem_fwd.h"

namespace fathom::lab {
struct CallMetrics;
}

namespace fathom::lab::fp8_linear {

inline constexpr int64_t kOutlierTokens = 64, kOutlierChannels = 360, kOutlierChannel = 5;
// A step's outliers may be twice as large as those before it; e4m3 has an exponent, so that this room costs
// little.
inline constexpr kernels::DelayedScaling kDelayed{.history = 1024, .margin = 1};

inline bool has_outlier(int64_t token, int64_t channel) {
  return token % kOutlierTokens == 0 && channel % kOutlierChannels == kOutlierChannel;
}

struct Linear {
  int64_t tokens, inputs, outputs, outlier;
  View<const bf16, 2> x;  // T x K
  // What a model knows of x before a call: a scale from 64 calibration batches, and the largest magnitudes of
  // the last kDelayed.history batches.
  View<const float, 1> calibrated_scale, amax_history;
  View<const bf16, 2> w;  // N x K
  // The weights with a scale of the tensor, of each row (output channel), and of each 128 x 128.
  View<const fp8_e4m3, 2> w_of_tensor, w_of_rows, w_of_blocks;
  View<const float, 1> tensor_scale, row_scales;
  View<const float, 2> block_scales;  // ceil(N / 128) x ceil(K / 128)
  View<bf16, 2> out;

  View<fp8_e4m3, 2> codes;  // workspace: x in e4m3 ...
  View<float, 1> scales;    // ... and its scales, at most ceil(K / 128) for a token
  View<float, 1> amax;      // of x, for the history
  View<uint8_t, 1> cublas_scratch;

  Linear(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t t, int64_t n) const;
  void metrics(CallMetrics& metrics) const;

  kernels::TensorScaled<fp8_e4m3> codes_of_tensor(View<const float, 1> scale) const {
    return {codes, {const_cast<float*>(scale.data()), {1}}};  // quantize() only reads it
  }
  View<float, 1> scale() const { return {scales.data(), {1}}; }
};

FATHOM_CUDA_LAUNCHER void bf16_gemm(const Linear& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void current_scaling(const Linear& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void delayed_scaling(const Linear& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void static_scale(const Linear& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void per_channel(const Linear& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void block_scales(const Linear& p, StreamRef stream);

// Plan the product; the returned call is timed.
using Call = std::function<void(const Linear&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call cublaslt_bf16(const Linear&, StreamRef);
FATHOM_CUDA_LAUNCHER Call cublaslt_fp8(const Linear&, StreamRef);

}  // namespace fathom::lab::fp8_linear
