// What the products of packed_linear.h with few rows and with many have in common at their launchers.
#pragma once

#include "core/expect.h"
#include "kernels/packed_epilogue.cuh"
#include "kernels/packed_linear.h"

namespace fathom::kernels {

// What becomes of the heads of x [T, K], with a cache of this format; checks the contract of project_heads.
template <class Kv>
StoreHeads<Kv> store_heads(View<const bf16, 2> x, const PackedMatrix& w, const HeadsTarget& to,
                           const Kv& kv) {
  const int64_t rows = x.extent(0), heads = to.q.extent(1);
  FATHOM_EXPECT(to.turns.extent(0) == rows && to.turns.extent(1) == kHeadDim && to.turns.contiguous() &&
                    to.slots.extent(0) == rows && to.slots.contiguous() && to.q.extent(0) == rows &&
                    to.q.extent(2) == kHeadDim && to.q.contiguous(),
                "project_heads: turns is [T, 64], slots [T], q [T, query heads, 64]");
  FATHOM_EXPECT(w.bias && w.rows == (heads + 2 * kv.heads) * kHeadDim,
                "project_heads: the weights have a bias, and the rows of all heads");
  return {.bias        = w.bias,
          .turns       = to.turns.data(),
          .slots       = to.slots.data(),
          .q           = to.q.data(),
          .kv          = kv,
          .query_heads = static_cast<int>(heads)};
}

}  // namespace fathom::kernels
