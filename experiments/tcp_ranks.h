// The ranks of an experiment as a group over TCP, as ranks of different hosts would be.
#pragma once

#include <memory>

#include "comm/tcp_group.h"
#include "lab/rank.h"

namespace fathom::lab {

// For prepare(), on all ranks. Uses the first word of their shared memory.
inline std::unique_ptr<comm::Group> join_over_tcp(const Rank& me) {
  auto* const port = reinterpret_cast<int64_t*>(me.shared().data());  // told by rank 0
  if (me.rank() == 0) *port = comm::free_tcp_port();
  me.barrier();
  auto group = comm::join_tcp_group({.port = static_cast<int>(*port), .rank = me.rank(), .size = me.size()});
  me.barrier();
  return group;
}

}  // namespace fathom::lab
