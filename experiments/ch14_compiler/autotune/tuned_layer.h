// The problem: the dense half of a transformer layer, T tokens of D = 256, with schedules of three launches
// to choose.
#pragma once

#include "experiments/ch14_compiler/mlp_layer.h"

namespace fathom::lab::autotune {

using mlp_layer::Layer;

Launch<Layer> default_schedule(const Layer&, Context&);
Launch<Layer> rule(const Layer&, Context&);
Launch<Layer> searched(const Layer&, Context&);
Launch<Layer> cached(const Layer&, Context&);

}  // namespace fathom::lab::autotune
