// The other host's side of `fathom launch --hosts`: starts the ranks of this host as the launcher orders,
// over ssh's input and output (remote.h), and ends them where the launcher is gone.
#pragma once

namespace fathom::launch {

// Returns when all ranks of this host have ended: the exit code.
int follow_launcher();

}  // namespace fathom::launch
