// Gathers the rows of the embedding table (kernels/embedding/embedding.h) on a GPU: the first kernel of a
// step.
//
// bytes   a token: 2 H read, 4 H written
// limit   latency at few rows: the sampled token, then its row of the table; DRAM bandwidth at many
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/cost.h"

namespace fathom::kernels {

// x(t, .) = table(token, .), where the token is sampled(source(t)) if source(t) >= 0, else tokens(t): the
// host need not know the token that the previous step sampled. A token outside [0, V) gives zeros: rows that
// are padding, or whose sampling failed. tokens, source [T], which no kernel of the chain of dependent
// launches writes (cuda/launch.cuh); table [V, H], H a multiple of 8; x [T, H].
void embedding(View<const int32_t, 1> tokens, View<const int32_t, 1> source, View<const int32_t, 1> sampled,
               View<const bf16, 2> table, View<float, 2> x, StreamRef stream);

inline Cost embedding_cost(int64_t rows, int64_t hidden) {
  const auto T = static_cast<double>(rows), H = static_cast<double>(hidden);
  return {.read = T * (8 + 2 * H), .written = 4 * T * H};
}

}  // namespace fathom::kernels
