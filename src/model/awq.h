// AWQ: multiplies each input's weights by a scale before they are rounded, and divides the input by it, so
// that the inputs with large activations lose least. Lin, Tang, Tang, Yang, Chen, Wang, Xiao, Dang, Gan, Han,
// "AWQ: Activation-aware Weight Quantization for LLM Compression and Acceleration", MLSys 2024 (arXiv
// 2306.00978).
//
//   s_k = (mean |x_k|)^a, a = 0, 1/20, .. 19/20; the a with the least |(W - Q(W diag(s)) diag(1/s)) X|^2
#pragma once

#include "core/result.h"
#include "core/thread_pool.h"
#include "core/view.h"
#include "model/calibration.h"
#include "model/group_quantization.h"

namespace fathom::model {

struct AwqOptions {
  GroupFormat format = {};
  int exponents      = 20;  // that are tried: 0, 1 / exponents, 2 / exponents, ..
  // Then the limits of each group, multiplied by 1, 0.95, .. 0.55: the factor with which the group's part of
  // the output errs least, the other groups left alone.
  bool clip = true;
};

struct Awq {
  QuantizedMatrix matrix;  // its input_scale is s
  double exponent = 0;
  double loss     = 0;  // the mean over tokens of |(W - Q) x|^2
};

// w: [outputs, inputs]. Fails where a weight is not finite.
Result<Awq> awq(View<const float, 2> w, const Calibration& calibration, const AwqOptions& options,
                ThreadPool& threads);

}  // namespace fathom::model
