// The arithmetic of reductions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/group.h"

namespace fathom::comm {

// True for the types that reduce() takes: fp64, fp32, bf16, fp16, int64, int32.
bool can_reduce(DType dtype);

// out[i] = sources[0][i] + sources[1][i] + ..., in this order, for i < n. 16-bit formats are summed in fp32
// and rounded once; integers wrap around. `out` may be one of the sources.
void reduce(DType dtype, Reduction reduction, std::span<const std::byte* const> sources, std::byte* out,
            int64_t n);

}  // namespace fathom::comm
