// A rank's call as a CUDA graph: the sums zeroed, and 50 sums.
#pragma once

#include <functional>

#include "all_reduce.h"
#include "cuda/stream.h"

namespace fathom::lab::all_reduce_gpu {

// x += the sum over ranks of `part`; sum number `index` of the call.
using SumInto = std::function<void(View<const float, 2> part, View<float, 2> x, int index, StreamRef stream)>;

Call captured(const Sums& p, Context& context, SumInto sum);

// to(i) += from(i).
void add(View<const float, 2> from, View<float, 2> to, StreamRef stream);
// to(0) += 1.
void count(View<int32_t, 1> to, StreamRef stream);

}  // namespace fathom::lab::all_reduce_gpu
