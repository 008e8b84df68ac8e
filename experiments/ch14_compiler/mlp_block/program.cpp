#include "program.h"

#include <array>
#include <memory>

#include "compile/canonical.h"
#include "compile/executable.h"
#include "compile/programs.h"

namespace fathom::lab::mlp_block {

Launch<Block> launch_of(compile::Plan (*plan)(const compile::Graph&)) {
  compile::Program p("mlp");
  const compile::Extent T = p.symbol({.name = "T"});
  const compile::Tensor x = p.input("x", {T, kHidden});
  const compile::Mlp w{.norm    = p.input("norm", {kHidden}),
                       .up      = p.input("up", {2 * kIntermediate, kHidden}, DType::bf16),
                       .up_bias = p.input("up_bias", {2 * kIntermediate}, DType::bf16),
                       .down    = p.input("down", {kHidden, kIntermediate}, DType::bf16)};
  p.output("y", mlp(x, w));
  const compile::Graph graph = compile::canonical(p.graph());
  const auto executable      = std::make_shared<compile::Executable>(graph, plan(graph));
  return [executable](const Block& block, Context& context) {
    const std::array<int64_t, 1> symbols{block.x.extent(0)};
    const std::array<const void*, 5> inputs{block.x.data(), block.w.norm.data(), block.w.up.data(),
                                            block.w.up_bias.data(), block.w.down.data()};
    const std::array<void*, 1> outputs{block.out.data()};
    executable->run(symbols, inputs, outputs, context.pool);
  };
}

}  // namespace fathom::lab::mlp_block
