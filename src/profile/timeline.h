// A call's activity as a trace: the host's API calls by thread, with the NVTX ranges above them, below them
// each GPU's kernels and copies by stream, and an arrow from each launch to its kernel.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "profile/activity.h"
#include "profile/trace.h"

namespace fathom::profile {

// `title` names the call: "ch07/transpose_gpu/padded n=4096".
Trace timeline(const Activity& activity, const std::string& title);

// Removes the driver calls inside runtime calls. A driver call stays where it alone has a correlation id of
// `launched`, or where no runtime call encloses it.
std::vector<HostCall> without_inner_driver_calls(const std::vector<HostCall>& calls,
                                                 const std::set<uint32_t>& launched);

}  // namespace fathom::profile
