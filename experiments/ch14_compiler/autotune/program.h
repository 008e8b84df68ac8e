// The layer as a program of the tensor compiler, whose launches a scheduler arranges.
#pragma once

#include "compile/tune_cache.h"
#include "tuned_layer.h"

namespace fathom::lab::autotune {

// Captured, fused and scheduled for the problem's extents; calls bring memory.
Launch<Layer> launch_of(const Layer& layer, Context& context, compile::Scheduler scheduler);

// Tuned schedules of this process: `searched` fills it and `cached` reads it. Deleted at exit.
compile::TuneCache& tune_cache();

// Every candidate, on the clock for long enough to finish.
inline constexpr compile::TuneOptions kExhaustive{.seconds = 4, .strategy = search::Strategy::grid};

}  // namespace fathom::lab::autotune
