// The problem: the dense half of a transformer layer, T tokens of D = 256.
#pragma once

#include "experiments/ch14_compiler/mlp_layer.h"

namespace fathom::lab::mlp_block {

using Block = mlp_layer::Layer;

Launch<Block> eager(const Block&, Context&);
Launch<Block> fused(const Block&, Context&);
Launch<Block> threads(const Block&, Context&);

}  // namespace fathom::lab::mlp_block
