// A call's activity as a trace: the host's calls by thread above, each GPU's kernels and copies by stream
// below, and an arrow from each launch to what it launched.
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

// Without the driver's calls that the runtime's are made of. A driver's call stays where a correlation of
// `launched` is known by it alone, or where no call of the runtime is around it.
std::vector<HostCall> without_inner_driver_calls(const std::vector<HostCall>& calls,
                                                 const std::set<uint32_t>& launched);

}  // namespace fathom::profile
