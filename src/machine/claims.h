// What a result measured on this machine can say, and what it can't: derived from facts, in sentences for a
// person.
#pragma once

#include <string>
#include <vector>

#include "machine/ceilings.h"
#include "machine/features.h"
#include "machine/gpu.h"
#include "machine/gpu_ceilings.h"
#include "machine/gpu_profiling.h"
#include "machine/isolation.h"
#include "machine/topology.h"

namespace fathom::machine {

struct Claims {
  std::vector<std::string> can, cannot;
};

// `lacking`: the features for which missing() gives a reason.
Claims claims(const Topology& machine, const Isolation& isolation, const Ceilings& ceilings,
              const std::vector<Feature>& lacking);

// The same of runs on a GPU.
Claims gpu_claims(const GpuFacts& gpu, const GpuCeilings& ceilings, const std::vector<GpuRungState>& rungs);

std::vector<Feature> lacking_features();  // of this machine

}  // namespace fathom::machine
