// The order in which the variants of an experiment run within a round.
#pragma once

#include <cstdint>
#include <vector>

namespace fathom::measure {

// A permutation of 0..variants-1 for one round: a pure function, so (variants, seed) stored in a record
// repeats the whole schedule.
//
// Rounds come in blocks of `variants`. In a block every variant stands at every position once (a Latin
// square), so whatever depends on position (a clock that ramps, a drift within the round) hits all alike.
// Squares are Williams' (E. J. Williams, 1949): in a block of an even count, and in two successive blocks
// (2j, 2j+1) of an odd one, every variant also follows every other equally often within rounds. A plain
// cyclic square would let each variant inherit the caches of the same neighbour in all but one round. Labels
// and the order of rows are drawn anew per block; two variants run ABBA or BAAB.
std::vector<int> round_order(int variants, int64_t round, uint64_t seed);

}  // namespace fathom::measure
