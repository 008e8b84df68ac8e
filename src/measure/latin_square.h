// The order in which the variants of an experiment run within a round.
#pragma once

#include <cstdint>
#include <vector>

namespace fathom::measure {

// A permutation of 0..variants-1 for one round: a pure function, so (variants, seed) in a record reproduce
// the whole schedule.
//
// Rounds form blocks of `variants`. In a block every variant has every position once (a Latin square), so
// effects of position (a ramping clock, drift within the round) affect all variants alike. The squares are
// Williams' (E. J. Williams, 1949): in a block of an even count, and in two successive blocks (2j, 2j+1) of
// an odd one, every variant also follows every other equally often within rounds. In a plain cyclic square
// each variant would inherit the caches of the same neighbour in all but one round. Labels and the order of
// rows are drawn anew for each block; two variants run ABBA or BAAB.
std::vector<int> round_order(int variants, int64_t round, uint64_t seed);

}  // namespace fathom::measure
