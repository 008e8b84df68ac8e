// The machine's measured ceilings as the roofs of a roofline.
#pragma once

#include "lab/roofline.h"
#include "machine/ceilings.h"

namespace fathom::cli {

lab::Roofs roofs_of(const machine::Ceilings& ceilings);

// Of the ceilings that are cached; without roofs where none were measured yet.
lab::Roofs known_roofs(const std::string& machine_id);

}  // namespace fathom::cli
