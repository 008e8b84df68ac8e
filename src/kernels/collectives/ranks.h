// What all collectives of the GPUs of one host have in common.
#pragma once

namespace fathom::kernels {

inline constexpr int kMaxRanks = 8;

// Ranks are in lockstep: all make the same calls with the same extents, in the same order. A rank that does
// not come makes the others trap after so many seconds (the CUDA context is lost then), never wait for ever.
inline constexpr int kCollectiveTimeout = 20;

}  // namespace fathom::kernels
