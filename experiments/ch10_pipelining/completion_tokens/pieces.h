// RMSNorm of rows that fill the shared memory of a multiprocessor, loaded in pieces.
#pragma once

#include "experiments/ch10_pipelining/rms_norm.h"

namespace fathom::lab::completion_tokens {

inline constexpr int kPieces   = 8;      // of a row
inline constexpr int kMaxWidth = 51200;  // 200 KiB

FATHOM_CUDA_LAUNCHER void one_wait(const RmsNorm& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void wait_per_piece(const RmsNorm& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void refill_per_piece(const RmsNorm& p, StreamRef stream);

}  // namespace fathom::lab::completion_tokens
