// Variants that cheat, one way each, beside an honest baseline. tests/adversarial/adversarial_test.cpp says
// which defence has to catch which.
#pragma once

#include <string>

namespace fathom::lab {

// Registers "cheats/<name>" for every cheat below and "deaths/<name>" for what kills a process.
void register_cheats();

}  // namespace fathom::lab
