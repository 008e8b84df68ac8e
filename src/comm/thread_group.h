// Ranks that are threads of this process.
#pragma once

#include <memory>
#include <vector>

#include "comm/group.h"

namespace fathom::comm {

// One group for each rank, to be used by one thread each. Messages are copied once, from the sender's memory
// to the receiver's, so that send() returns when the message was received.
std::vector<std::unique_ptr<Group>> make_thread_groups(int size, const GroupOptions& options = {});

}  // namespace fathom::comm
