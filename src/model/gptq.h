// GPTQ: quantizes a layer's weights one input after another, and moves what rounding an input's weights lost
// into the weights of the inputs that follow, so that the layer's outputs change least. Frantar, Ashkboos,
// Hoefler, Alistarh, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers",
// ICLR 2023 (arXiv 2210.17323), algorithm 1.
//
// With H = mean of x x' + damping (mean of its diagonal) I, and U upper triangular, H^-1 = U' U, for each
// input i in turn:
//   q_i = round(w_i);  e = (w_i - q_i) / U_ii;  w_j -= e U_ij for all j > i
// Then the sum of all e^2 is tr((W - Q) H (W - Q)').
#pragma once

#include "core/result.h"
#include "core/thread_pool.h"
#include "core/view.h"
#include "model/calibration.h"
#include "model/group_quantization.h"

namespace fathom::model {

struct GptqOptions {
  GroupFormat format = {};
  double damping     = 0.01;
  // Inputs whose errors reach the inputs behind them together (lazy updates). It changes the time alone. A
  // multiple or a divisor of the group, where a row has more than one.
  int64_t block = 128;
  // Takes inputs by falling H_ii, the ones that matter most first. Groups stay those of consecutive inputs,
  // and so their grids are those of the original weights. Else a grid is fitted when its first input is
  // reached, to the weights as they are then.
  bool act_order = false;
};

struct Gptq {
  QuantizedMatrix matrix;
  double loss = 0;  // tr((W - Q) H (W - Q)')
};

// w: [outputs, inputs]. An input that is zero in all calibration tokens gets weights of zero. Fails where a
// weight is not finite, or H is not positive definite.
Result<Gptq> gptq(View<const float, 2> w, const Calibration& calibration, const GptqOptions& options,
                  ThreadPool& threads);

}  // namespace fathom::model
