// Where a step of the model begins on the GPU: the rows of x from their tokens (kernels/embedding.h), and the
// turns of their positions, which every layer's queries and keys share (kernels/rope.h).
//
// bytes   embed: 6 H a token, 2 H read and 4 H written; turns: 256 a token written
// limit   latency: the token that the step before chose, then its row of the table
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/stream.h"
#include "core/view.h"

namespace fathom::kernels {

// x(t, .) = table(token, .), where the token is sampled(source(t)) if source(t) >= 0, else tokens(t): the
// host need not know what was chosen. A token outside [0, V), as of a row that is padding or of a choice that
// failed, gives zeros. tokens, source [T], which no kernel of the chain writes; table [V, H], H a multiple of
// 8; x [T, H].
void embed(View<const int32_t, 1> tokens, View<const int32_t, 1> source, View<const int32_t, 1> sampled,
           View<const bf16, 2> table, View<float, 2> x, StreamRef stream);

// table [T, 64]: 32 cosines, then 32 sines, times the concentration. positions [T], which no kernel of the
// chain writes; frequencies [32], radians a position, zeros behind those of a smaller head. Angles are
// products in fp32 of magnitude below 2^20; of a negative position (padding) the turn is some finite one.
void turns(View<const int32_t, 1> positions, View<const float, 1> frequencies, float concentration,
           View<float, 2> table, StreamRef stream);

}  // namespace fathom::kernels
