// A rank's call as a CUDA graph: x and the nonces' sum zeroed, the pass counted, and 50 sums with their
// norms.
#pragma once

#include <functional>

#include "all_reduce_rmsnorm.h"
#include "cuda/stream.h"
#include "kernels/collectives/all_reduce_add.h"

namespace fathom::lab::all_reduce_rmsnorm_gpu {

// x += the sum over ranks of `part`, y = the norm of x; `call` says which of the graph's sums it is.
using NormedSum = std::function<void(View<const float, 2> part, View<float, 2> x, View<bf16, 2> y,
                                     const kernels::CollectiveCall& call, StreamRef stream)>;

Call captured(const NormedSums& p, Context& context, NormedSum sum);

// Loads the kernels of add_rmsnorm for this call's rows, while no kernel on this GPU waits for another rank:
// CUDA may wait for the GPU before it loads one.
void load_add_rmsnorm(const NormedSums& p, Context& context);

// What add_rmsnorm adds where x has its sum already: parts of no rows.
inline View<const float, 3> nothing() { return {nullptr, {0, 1, kWidth}}; }

// to(0) += 1.
void count(View<int32_t, 1> to, StreamRef stream);

}  // namespace fathom::lab::all_reduce_rmsnorm_gpu
