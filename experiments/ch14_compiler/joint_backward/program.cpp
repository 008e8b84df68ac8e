#include "program.h"

#include <array>
#include <memory>

#include "compile/canonical.h"
#include "compile/executable.h"
#include "compile/gradient.h"
#include "compile/programs.h"

namespace fathom::lab::joint_backward {

Launch<GatedNorm> launch_of(compile::Plan (*plan)(const compile::Graph&)) {
  compile::Program p("gated_norm");
  const compile::Extent T = p.symbol({.name = "T"});
  const compile::Tensor x = p.input("x", {T, kWidth}), z = p.input("z", {T, kWidth});
  p.output("y", gated_norm(x, z, p.input("w", {kWidth})));
  const compile::Graph graph = canonical(gradient(p.graph(), "y", {"x", "z", "w"}));
  const auto executable      = std::make_shared<compile::Executable>(graph, plan(graph));
  return [executable](const GatedNorm& norm, Context& context) {
    const std::array<int64_t, 1> symbols{norm.x.extent(0)};
    const std::array<const void*, 4> inputs{norm.x.data(), norm.z.data(), norm.w.data(), norm.dy.data()};
    const std::array<void*, 4> outputs{norm.y.data(), norm.dx.data(), norm.dz.data(), norm.dw.data()};
    executable->run(symbols, inputs, outputs, context.pool);
  };
}

}  // namespace fathom::lab::joint_backward
