// The child of a run: `fathom __experiment <options as JSON>`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lab/profiler.h"
#include "lab/run_options.h"

namespace fathom::lab {

// Makes a profiler for what RunOptions say of it.
using ProfilerFactory = std::function<std::unique_ptr<Profiler>(const RunOptions&)>;

// The child's whole life. `profiler`: null where this program has none.
int child_main(int argc, char** argv, const ProfilerFactory& profiler = nullptr);

}  // namespace fathom::lab
