// The machine's measured ceilings as the roofs of a roofline.
#pragma once

#include "machine/ceilings.h"
#include "machine/gpu_ceilings.h"
#include "report/roofline.h"

namespace fathom::cli {

report::Roofs roofs_of(const machine::Ceilings& ceilings);
report::Roofs roofs_of(const machine::GpuCeilings& ceilings);

// Roofs of this process's GPU if `machine_id` names it, or else of the host. `refresh` decides whether they
// are measured now.
report::Roofs measured_roofs(const std::string& machine_id, machine::Refresh refresh);

// Roofs from the cached ceilings; empty if none were measured yet.
report::Roofs known_roofs(const std::string& machine_id);

}  // namespace fathom::cli
