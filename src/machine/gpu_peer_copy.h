// Copies between the GPUs of this process: bandwidth one way and both ways at once, and time by size. Only
// builds with CUDA have it.
#pragma once

#include <vector>

#include "machine/gpu.h"
#include "machine/gpu_ceilings.h"

namespace fathom::machine {

// Every ordered pair in turn, some 200 ms each. Makes a context on every GPU, and leaves peer access enabled
// where the GPUs support it. `facts` are of any of them.
std::vector<PeerRate> measure_peer_copies(const GpuFacts& facts);

}  // namespace fathom::machine
