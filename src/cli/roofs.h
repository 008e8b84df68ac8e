// The machine's measured ceilings as the roofs of a roofline.
#pragma once

#include "lab/roofline.h"
#include "machine/ceilings.h"
#include "machine/gpu_ceilings.h"

namespace fathom::cli {

lab::Roofs roofs_of(const machine::Ceilings& ceilings);
lab::Roofs roofs_of(const machine::GpuCeilings& ceilings);

// Of the GPU's ceilings where `machine_id` names this process's GPU, else of the host's. They are measured
// now where `refresh` says so.
lab::Roofs measured_roofs(const std::string& machine_id, machine::Refresh refresh);

// Of the ceilings that are cached; without roofs where none were measured yet.
lab::Roofs known_roofs(const std::string& machine_id);

}  // namespace fathom::cli
