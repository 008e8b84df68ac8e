// The problem: a network is trained in few bits, as mixed precision does it (Micikevicius et al., 2018, arXiv
// 1710.03740).
//   h = relu(W1 x)    y = W2 h    loss = sum over the tokens of all ranks of (y - target)^2 / (2 T)
// T tokens of a step lie on all ranks together, and this one has 32 of them, so each of its gradients is of
// the order of 1 / T. The other ranks' tokens are taken to be like these: the sum over ranks is T / 32 times
// ours.
//
// fp32 holds the weights, the sums of products and the update. Weights as products read them, activations and
// gradients are rounded to the format, wherever they would be stored: the format is emulated, so the time of
// a call says what rounding costs on a CPU, and nothing of the format's speed. What is measured is what
// training comes to.
//
// A loss scale multiplies the gradient of the loss, and with it all gradients, which are divided by it again
// in fp32.
#pragma once

#include <cstdint>

#include "lab/problem.h"

namespace fathom::lab {
struct CallMetrics;
}

namespace fathom::lab::loss_scaling {

inline constexpr int64_t kIn = 16, kHidden = 32, kBatch = 32;
inline constexpr float kLearningRate = 0.1f;

// What a call reports, beside the weights.
enum Figure : int64_t {
  kFirstLoss,  // the mean of (y - target)^2 / 2 over the first eighth of the steps
  kLastLoss,   // and over the last
  kFlushed,    // gradients of hidden units that became 0, of those that are none
  kGradients,  // how many there were
  kSkipped,    // steps that changed nothing, because a gradient was infinite
  kLossScale,  // at the end
  kFigures,
};

struct Training {
  View<const float, 2> x;         // [steps * kBatch, kIn]
  View<const float, 1> target;    // [steps * kBatch], of a network of this shape
  View<const float, 2> first_w1;  // [kHidden, kIn]
  View<const float, 1> first_w2;  // [kHidden]
  View<float, 2> w1;              // the trained weights
  View<float, 1> w2;
  View<double, 1> figures;  // workspace, [kFigures]
  double step_tokens;       // T

  Training(const Point& at, Arena& arena);
  Cost cost() const;
  // No weight is further from where training in double ends than the largest step that any weight took there.
  void check(Checker& checker) const;
  void metrics(CallMetrics& metrics) const;

  int64_t steps() const { return x.extent(0) / kBatch; }
};

struct LossScale {
  float first = 1;
  // Halved after a step with an infinite gradient, which changes nothing; doubled after so many without. 0:
  // it stays.
  int growth_interval = 0;
};

enum class Format { fp32, fp16, bf16 };

// Trains and fills the outputs.
void train(const Training& p, Format format, LossScale scale);

void fp32(const Training& p, Context&);
void fp16(const Training& p, Context&);
void fp16_static_scale(const Training& p, Context&);
void fp16_dynamic_scale(const Training& p, Context&);
void bf16(const Training& p, Context&);

}  // namespace fathom::lab::loss_scaling
