// The problem: a model of L equal blocks, the dense half of a transformer layer each, called with 4 tokens
// and then with 8.
#pragma once

#include "experiments/ch14_compiler/mlp_layer.h"

namespace fathom::lab::regional_compilation {

using mlp_layer::kHidden, mlp_layer::kIntermediate;
inline constexpr int64_t kSteps[] = {4, 8};  // tokens of each

struct Stack {
  View<const float, 2> x;
  View<const float, 2> norm;
  View<const bf16, 3> up, down;
  View<const bf16, 2> up_bias;
  View<float, 2> out;

  Stack(const Point& at, Arena& arena)
      : x(arena.input<float>({kSteps[0] + kSteps[1], kHidden}, Normal{})),
        norm(arena.input<float>({at["layers"], kHidden}, Uniform{0.5, 1.5})),
        up(arena.input<bf16>({at["layers"], 2 * kIntermediate, kHidden}, Uniform{-0.05, 0.05})),
        down(arena.input<bf16>({at["layers"], kHidden, kIntermediate}, Uniform{-0.05, 0.05})),
        up_bias(arena.input<bf16>({at["layers"], 2 * kIntermediate}, Uniform{-0.5, 0.5})),
        out(arena.output<float>({kSteps[0] + kSteps[1], kHidden})) {}

  int64_t layers() const { return norm.extent(0); }

  // Of the products of both steps; weights are read at each.
  Cost cost() const {
    return {.read    = x.bytes() + 2 * (norm.bytes() + up.bytes() + down.bytes() + up_bias.bytes()),
            .written = out.bytes(),
            .flops   = 2.0 * static_cast<double>(x.extent(0) * layers()) * (3 * kHidden * kIntermediate)};
  }

  void check(Checker& checker) const {
    int64_t row = -1;
    std::vector<double> y(kHidden), magnitudes(kHidden);
    checker.values("out", out, [&](int64_t t, int64_t d) {
      if (t != std::exchange(row, t)) {
        for (int64_t i = 0; i < kHidden; ++i) y[static_cast<size_t>(i)] = x(t, i);
        for (int64_t i = 0; i < kHidden; ++i) magnitudes[static_cast<size_t>(i)] = std::abs(x(t, i));
        for (int64_t layer = 0; layer < layers(); ++layer) add_layer(weights(layer), y, magnitudes);
      }
      // In each block h and a are rounded to bf16, and one that lies between two numbers may become either.
      // Blocks add such errors to x, and pass on those of earlier blocks about as they are: a block's own
      // contribution is a tenth of x.
      return Sum{.value      = y[static_cast<size_t>(d)],
                 .magnitude  = magnitudes[static_cast<size_t>(d)],
                 .length     = std::max<int64_t>(layers(), 1),
                 .accumulate = DType::bf16};
    });
  }

  mlp_layer::Weights weights(int64_t layer) const {
    return {.norm    = {&norm(layer, 0), {kHidden}},
            .up      = {&up(layer, 0, 0), {2 * kIntermediate, kHidden}},
            .up_bias = {&up_bias(layer, 0), {2 * kIntermediate}},
            .down    = {&down(layer, 0, 0), {kHidden, kIntermediate}}};
  }
};

void whole(const Stack&, Context&);
void regional(const Stack&, Context&);
Launch<Stack> whole_kept(const Stack&, Context&);
Launch<Stack> regional_kept(const Stack&, Context&);

}  // namespace fathom::lab::regional_compilation
