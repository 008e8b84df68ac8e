// Copies between the GPUs that this process sees; only builds with CUDA have them.
#pragma once

#include <vector>

#include "machine/gpu_ceilings.h"

namespace fathom::machine {

// Every ordered pair, one after another, in some 100 ms each. Makes a context on every GPU, and leaves peer
// access enabled where there is one.
std::vector<PeerRate> measure_peer_copies();

}  // namespace fathom::machine
