// A job of `fathom launch` from its start to its end: ranks of this host as child processes, ranks of other
// hosts behind an ssh each.
#pragma once

#include <string>
#include <vector>

#include "launch/ranks.h"

namespace fathom::launch {

struct LaunchPlan {
  std::vector<NodeJob> here;       // started by this process: one, or several names of this host
  std::vector<NodeJob> elsewhere;  // by ssh
  int world                  = 1;
  std::string master_address = "127.0.0.1";
  int master_port            = 0;  // 0: a port that is free on rank 0's host
  std::string ssh            = "ssh";
};

// Returns when all ranks have ended: the exit code.
int run_launch(LaunchPlan plan);

}  // namespace fathom::launch
