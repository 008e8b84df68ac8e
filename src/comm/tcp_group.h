// Ranks that are processes, of one host or several, connected by TCP.
//
// They meet at an address, where rank 0 listens: the variables MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE
// say it, as torchrun and `fathom launch` set them. Every two ranks have two connections: one for messages,
// one over which a rank says goodbye, why it gave up, or that it is still there. A process that dies closes
// both, so that the others know at once; one that hangs does not answer when an operation takes too long.
// There is no thread: a rank answers while it is in an operation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "comm/group.h"
#include "core/result.h"

namespace fathom::comm {

struct Rendezvous {
  std::string address = "127.0.0.1";
  int port            = 0;
  int rank            = 0;
  int size            = 1;
};

// What the environment says; nothing where WORLD_SIZE is not set. FATHOM_GROUP_TIMEOUT: seconds.
Result<std::optional<Rendezvous>> rendezvous_from_environment();
Result<GroupOptions> group_options_from_environment();

// A port of this host that nobody uses now.
int free_tcp_port();

// Returns when all ranks have come and are connected. Throws GroupError, Operation::join, where one does not
// come within the timeout or was started for a group of another size, and SystemError where rank 0 cannot
// listen.
std::unique_ptr<Group> join_tcp_group(const Rendezvous& rendezvous, const GroupOptions& options = {});

// From now on this rank sends at most so many bytes a second to each other rank, on average: the kernel paces
// the sockets (SO_MAX_PACING_RATE), and no CPU is busy. Up to 64 KB leave at once, so short messages cost too
// little. `group`: of join_tcp_group(). Throws SystemError.
void limit_sending(Group& group, int64_t bytes_per_s);

}  // namespace fathom::comm
