// Kernels around an all-to-all that moves rows and no more.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "exchange.h"

namespace fathom::lab::expert_dispatch_gpu {

// Experts of tokens of all ranks, numbered from the first of `rank`'s; -1 and weight 0: of another rank.
void number_from_rank(View<const int32_t, 2> experts, View<const float, 2> weights, int rank,
                      const kernels::DispatchedRows& to, StreamRef stream);
// sums(row, h) = sum_k parts(row, k, h), over the k whose expert is here.
void sum_parts(View<const float, 3> parts, View<const int32_t, 2> experts, View<bf16, 2> sums,
               StreamRef stream);
// out(t, h) += sum_q sums(q T + t, h).
void add_sums(View<const bf16, 2> sums, View<float, 2> out, StreamRef stream);

// to(0) += 1.
void count(View<int32_t, 1> to, StreamRef stream);

}  // namespace fathom::lab::expert_dispatch_gpu
