// The problem: chains of dependent loads over a table, one word of each 128-byte line. A chain stands at byte
//   p(0) = 2654435761 c,   p(k + 1) = word(p(k)) xor key(c, k),   rounded down to a line of the table,
// and out(c) = p(4096). The key differs in each step, so that no chain runs into a short cycle, and is no
// part of the chain of dependences. The table's size is a power of two.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Point;
struct Cost;
}  // namespace fathom::lab

namespace fathom::lab::memory_hierarchy {

inline constexpr int kSteps               = 4096;
inline constexpr int kLine                = 128;                // bytes
inline constexpr int64_t kMostBytesOnHost = int64_t{64} << 20;  // of a table that the host holds too
inline constexpr uint32_t kKeyStep        = 0x9E3779B1u;

FATHOM_HD constexpr uint32_t start_of(uint32_t chain) { return chain * 2654435761u; }
FATHOM_HD constexpr uint32_t first_key(uint32_t chain) { return chain * 0x85EBCA6Bu; }

struct Walk {
  View<const uint32_t, 1> table;    // in the GPU's memory
  View<const uint32_t, 1> on_host;  // the same numbers, page-locked; empty beyond kMostBytesOnHost
  View<uint32_t, 1> out;            // of each chain

  Walk(const Point& at, Arena& arena);
  Cost cost() const;
  int64_t expected(int64_t chain) const;
};

FATHOM_CUDA_LAUNCHER void through_l1(const Walk& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void past_l1(const Walk& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void shared(const Walk& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void registers(const Walk& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void host_memory(const Walk& p, StreamRef stream);

}  // namespace fathom::lab::memory_hierarchy
