#include "program.h"

#include <array>
#include <memory>

#include "compile/canonical.h"
#include "compile/executable.h"
#include "compile/tensor.h"

namespace fathom::lab::fused_chain {
namespace {

compile::Graph chain_graph(int64_t dim) {
  compile::Program p("chain");
  const compile::Extent T = p.symbol({.name = "T"});
  const compile::Tensor x = p.input("x", {T, dim}), residual = p.input("residual", {T, dim}),
                        weight = p.input("weight", {dim});
  const compile::Tensor sum    = x + residual;
  p.output("sum", sum);
  p.output("y", clamp(rms_norm(sum, weight, kEpsilon), -kLimit, kLimit));
  return compile::canonical(p.graph());
}

}  // namespace

Launch<Chain> launch_of(const Chain& p, compile::Plan (*plan)(const compile::Graph&)) {
  const compile::Graph graph = chain_graph(p.x.extent(1));
  const auto executable      = std::make_shared<compile::Executable>(graph, plan(graph));
  return [executable](const Chain& chain, Context& context) {
    const std::array<int64_t, 1> symbols{chain.x.extent(0)};
    const std::array<const void*, 3> inputs{chain.x.data(), chain.residual.data(), chain.weight.data()};
    const std::array<void*, 2> outputs{chain.sum.data(), chain.y.data()};
    executable->run(symbols, inputs, outputs, context.pool);
  };
}

}  // namespace fathom::lab::fused_chain
