// y = x + down(swiglu(up(norm(x))))       T x 256, fp32, weights in bf16
//
// flops   344 k a token
// limit   the FMA units; for a few tokens the weights' bytes
// idea    every candidate timed before the clock starts, and each launch's fastest kept in a file
#include "program.h"

namespace fathom::lab::autotune {

Launch<Layer> searched(const Layer& layer, Context& context) {
  return launch_of(layer, context,
                   [](const compile::Graph& graph, const compile::Plan& plan,
                      std::span<const int64_t> symbols, ThreadPool& pool) {
                     const compile::Tuned tuned = tune(graph, plan, symbols, pool, kExhaustive);
                     tune_cache().store(graph, symbols, pool.threads(), tuned);
                     return tuned.schedules;
                   });
}

}  // namespace fathom::lab::autotune
