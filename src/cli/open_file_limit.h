// The limit of open file descriptors.
#pragma once

namespace fathom::cli {

// Raises the soft limit to the hard limit: each connection needs a descriptor, and the usual soft limit is
// 1024. If that fails, connections beyond the limit fail with their own message.
void raise_open_file_limit();

}  // namespace fathom::cli
