// The problem: a linear layer's weights become 4-bit codes, and then 64 tokens pass through it.
//   out(t, n) = sum_k Q(n, k) x(t, k)        Q: the numbers that the codes stand for
// What Q may know of the inputs is what 512 other tokens show.
#pragma once

#include "lab/problem.h"
#include "model/group_quantization.h"

namespace fathom::lab {
struct CallMetrics;
}

namespace fathom::lab::awq_gptq {

struct Layer {
  int64_t tokens;  // to calibrate with
  model::GroupFormat format;
  View<const float, 2> w;  // [outputs, inputs]
  View<const float, 2> x;  // [tokens + kUnseen, inputs]
  View<float, 2> out;      // [kUnseen, outputs]

  static constexpr int64_t kUnseen = 64;

  Layer(const Point& at, Arena& arena);
  Cost cost() const { return {.read = w.bytes() + x.bytes(), .written = out.bytes()}; }
  Sum expected(int64_t t, int64_t n) const;
  // relative_output_error: the rms of out - W x over the rms of W x.
  void metrics(CallMetrics& metrics) const;

  View<const float, 2> calibration_tokens() const { return {x.data(), {tokens, x.extent(1)}}; }
  View<const float, 2> unseen_tokens() const {
    return {x.data() + tokens * x.extent(1), {kUnseen, x.extent(1)}};
  }

  void multiply(const model::QuantizedMatrix& q) const;  // writes out
};

void round_to_nearest(const Layer& layer, Context& context);
void awq(const Layer& layer, Context& context);
void gptq(const Layer& layer, Context& context);
void act_order(const Layer& layer, Context& context);

}  // namespace fathom::lab::awq_gptq
