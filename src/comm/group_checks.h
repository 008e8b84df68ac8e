// For tests of groups: programs that a rank runs, whose results are compared with plain loops over what all
// ranks put in. Empty text: all was right.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/group.h"

namespace fathom::comm {

// Every collective at sizes 0, 1, a prime and one that an all-reduce takes in two steps; every reduction and
// type.
std::string wrong_collectives(Group& group);

// `steps` operations of random kind, type, size and root, the same on all ranks.
std::string wrong_random_program(Group& group, uint64_t seed, int steps);

// Runs rank_main on a thread for each rank of a thread group; what a rank throws is its entry.
std::vector<std::optional<GroupError>> on_threads(int size, const GroupOptions& options,
                                                  const std::function<void(Group&)>& rank_main);
void expect_all_well(const std::vector<std::optional<GroupError>>& errors);

}  // namespace fathom::comm
