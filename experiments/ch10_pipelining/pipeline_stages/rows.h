// Rows of RMSNorm through a ring of shared-memory stages.
#pragma once

#include "experiments/ch10_pipelining/rms_norm.h"

namespace fathom::lab::pipeline_stages {

inline constexpr int kMaxWidth = 8192;

FATHOM_CUDA_LAUNCHER void many_blocks(const RmsNorm& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void one_stage(const RmsNorm& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void two_stages(const RmsNorm& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void three_stages(const RmsNorm& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void four_stages(const RmsNorm& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void six_stages(const RmsNorm& p, StreamRef stream);

}  // namespace fathom::lab::pipeline_stages
