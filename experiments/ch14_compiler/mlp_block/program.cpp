#include "program.h"

#include "experiments/ch14_compiler/mlp_program.h"

namespace fathom::lab::mlp_block {

Launch<Block> launch_of(compile::Plan (*plan)(const compile::Graph&)) {
  const compile::Graph graph = mlp_layer::captured();
  return mlp_layer::launch_of(std::make_shared<compile::Executable>(graph, plan(graph)));
}

}  // namespace fathom::lab::mlp_block
