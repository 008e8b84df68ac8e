// How ranks find and connect to each other.
#pragma once

#include <chrono>
#include <vector>

#include "comm/tcp_group.h"

namespace fathom::comm {

// Connected sockets to another rank, which the caller closes; -1 for the rank itself.
struct TcpLink {
  int messages = -1, control = -1;
};

// One for each rank. Throws GroupError (Operation::join) or SystemError, and leaves nothing open then.
std::vector<TcpLink> connect_ranks(const Rendezvous& rendezvous, std::chrono::milliseconds timeout);

}  // namespace fathom::comm
