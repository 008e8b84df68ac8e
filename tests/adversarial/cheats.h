// Variants that each cheat in one way, beside an honest baseline. tests/adversarial/adversarial_test.cpp
// names the defence that must catch each.
#pragma once

#include <string>

namespace fathom::lab {

// Registers "cheats/<name>" for every cheat and "deaths/<name>" for every way to kill a process.
void register_cheats();

}  // namespace fathom::lab
