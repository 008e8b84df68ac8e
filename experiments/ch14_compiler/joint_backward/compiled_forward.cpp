// y = rms_norm(x) w silu(z), and dx, dz, dw of dy      T x 2048, fp32
//
// bytes   24 an element: x, z, dy read; y, dx, dz written
// limit   memory bandwidth
// idea    nodes before dy are fused and store what the backward half reads, which has a launch a node
#include <algorithm>

#include "program.h"

namespace fathom::lab::joint_backward {
namespace {

compile::Plan forward_fused(const compile::Graph& graph) {
  const auto is_dy = [](const compile::Node& node) {
    return node.op == compile::Op::input && node.name == "dy";
  };
  const auto dy = std::ranges::find_if(graph.nodes, is_dy);
  return compile::fuse_before(graph, static_cast<int>(dy - graph.nodes.begin()));
}

}  // namespace

Launch<GatedNorm> compiled_forward(const GatedNorm&, Context&) { return launch_of(forward_fused); }

}  // namespace fathom::lab::joint_backward
