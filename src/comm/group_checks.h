// For tests of groups: programs that a rank runs, whose results are compared with plain loops over what all
// ranks put in. Empty text: all was right.
#pragma once

#include <cstdint>
#include <string>

#include "comm/group.h"

namespace fathom::comm {

// Every collective at sizes 0, 1, a prime and one that an all-reduce takes in two steps; every reduction and
// type.
std::string wrong_collectives(Group& group);

// `steps` operations of random kind, type, size and root, the same on all ranks.
std::string wrong_random_program(Group& group, uint64_t seed, int steps);

}  // namespace fathom::comm
