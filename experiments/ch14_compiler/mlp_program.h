// mlp_layer.h as a program of the tensor compiler, and calls of what was compiled from it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "compile/canonical.h"
#include "compile/executable.h"
#include "compile/programs.h"
#include "experiments/ch14_compiler/mlp_layer.h"

namespace fathom::lab::mlp_layer {

// In canonical form, for any number of tokens.
inline compile::Graph captured() {
  compile::Program p("mlp");
  const compile::Extent T = p.symbol({.name = "T"});
  const compile::Tensor x = p.input("x", {T, kHidden});
  const compile::Mlp w{.norm    = p.input("norm", {kHidden}),
                       .up      = p.input("up", {2 * kIntermediate, kHidden}, DType::bf16),
                       .up_bias = p.input("up_bias", {2 * kIntermediate}, DType::bf16),
                       .down    = p.input("down", {kHidden, kIntermediate}, DType::bf16)};
  p.output("y", mlp(x, w));
  return compile::canonical(p.graph());
}

// Calls bring memory and the number of tokens.
inline Launch<Layer> launch_of(std::shared_ptr<compile::Executable> executable) {
  return [executable = std::move(executable)](const Layer& layer, Context& context) {
    const std::array<int64_t, 1> symbols{layer.x.extent(0)};
    const std::array<const void*, 5> inputs{layer.x.data(), layer.w.norm.data(), layer.w.up.data(),
                                            layer.w.up_bias.data(), layer.w.down.data()};
    const std::array<void*, 1> outputs{layer.out.data()};
    executable->run(symbols, inputs, outputs, context.pool);
  };
}

}  // namespace fathom::lab::mlp_layer
