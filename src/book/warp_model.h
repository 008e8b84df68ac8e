// What one memory instruction of a warp costs: the distinct 32-byte sectors of global memory, the passes over
// the banks of shared memory, and the paths of a branch. The model of the book's warp model; freestanding,
// for it is compiled to WebAssembly too.
#pragma once

#include <stdint.h>

namespace fathom::book {

inline constexpr int32_t kLanes       = 32;
inline constexpr int32_t kBanks       = 32;  // of 4 bytes
inline constexpr int32_t kSectorBytes = 32;
inline constexpr int32_t kRowBytes    = 128;  // a line of global memory; one word of each bank

// Lane l accesses element base + stride * l. The swizzle is that of a tile in shared memory whose rows have
// 128 bytes: within row r, the unit (an element, at least a word) at column c lies at column c xor r.
struct WarpAccess {
  int32_t base          = 0;
  int32_t stride        = 1;
  int32_t element_bytes = 4;  // 1, 2, 4, 8 or 16
  bool swizzle          = false;
};

// An address below 0 or above 2^31, or a size that no instruction has, is not possible.
bool possible(const WarpAccess& access);

// Byte addresses; the access must be possible.
int32_t global_address(const WarpAccess& access, int32_t lane);
int32_t shared_address(const WarpAccess& access, int32_t lane);

enum class Branch : int32_t {
  none,       // all lanes, one path
  guard,      // if (lane < k): the other lanes do nothing
  if_else,    // if (lane < k) ... else ...
  remainder,  // switch (lane % k)
  quotient,   // switch (lane / k)
};

// The path that a lane takes, from 0; -1: none. k is at least 1.
int32_t path_of(Branch branch, int32_t k, int32_t lane);

// The lanes of a path, one bit each, and the number of paths that some lane takes, all below kLanes.
uint32_t lanes_of_path(Branch branch, int32_t k, int32_t path);
int32_t paths(Branch branch, int32_t k);

// Distinct sectors that the active lanes touch, and distinct bytes that they ask for.
int32_t sectors(const WarpAccess& access, uint32_t active);
int32_t bytes_wanted(const WarpAccess& access, uint32_t active);

// Lanes that shared memory serves together: a warp for up to 4 bytes a lane, half of it for 8, a quarter for
// 16, since a pass delivers 128 bytes.
int32_t group_lanes(int32_t element_bytes);

// The pass, from 0, in which the lane's group has this lane's words: in a pass a bank delivers one word, to
// all lanes that want it. -1 for a lane that is not active.
int32_t bank_pass(const WarpAccess& access, uint32_t active, int32_t lane);

// Passes of all groups together, and the most that one group needs: the degree of the conflict, 1 for none
// and 0 without an active lane.
int32_t bank_passes(const WarpAccess& access, uint32_t active);
int32_t conflict_degree(const WarpAccess& access, uint32_t active);

}  // namespace fathom::book
