// File descriptors for many connections at once.
#pragma once

namespace fathom::cli {

// Lets this process have as many as the system permits: a connection is a descriptor, and the usual soft
// limit is 1024 of them. Where it is refused, the connections that fail say so.
void allow_many_connections();

}  // namespace fathom::cli
