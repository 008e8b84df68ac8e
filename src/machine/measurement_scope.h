// What results of this machine can show and what they cannot: sentences for the user, derived from facts.
// doctor prints them.
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

struct MeasurementScope {
  std::vector<std::string> can, cannot;
};

// `lacking`: the features that missing() reports.
MeasurementScope measurement_scope(const Topology& machine, const Isolation& isolation,
                                   const Ceilings& ceilings, const std::vector<Feature>& lacking);

// The same for runs on a GPU.
MeasurementScope gpu_measurement_scope(const GpuFacts& gpu, const GpuCeilings& ceilings,
                                       const std::vector<GpuRungState>& rungs);

std::vector<Feature> lacking_features();  // of this machine

}  // namespace fathom::machine
