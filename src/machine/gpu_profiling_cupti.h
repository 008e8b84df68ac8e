// The rungs of machine/gpu_profiling.h that need CUPTI, the toolkit's profiling library, opened at run time.
#pragma once

#include <string>

#include "core/result.h"

namespace fathom::machine {

// What was seen, or why not.
Result<std::string> try_cupti_activity();
Result<std::string> try_cupti_range_profiler();
Result<std::string> try_cupti_pm_sampling();

}  // namespace fathom::machine
