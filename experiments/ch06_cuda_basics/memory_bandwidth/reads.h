// The problem: `blocks` of 256 threads read the same number of 16-byte vectors from a table, whose size is a
// power of two, in one of four patterns:
//   out(t) = the sum modulo 2^32 of the first words of the 256 vectors that thread t reads
// A pattern is a function of the block, the step, and the thread in the block: the vector that is read.
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

namespace fathom::lab::memory_bandwidth {

inline constexpr int kThreads = 256, kSteps = 256;
inline constexpr int kVector = 16, kLine = 128, kPerLine = kLine / kVector;  // bytes, bytes, vectors

inline constexpr uint32_t kStretch = kThreads * kSteps;  // vectors that a block reads: 1 MiB

// A position in the order of all reads: block after block, step after step.
FATHOM_HD constexpr uint32_t position(uint32_t block, uint32_t step, uint32_t thread) {
  return (block * kSteps + step) * kThreads + thread;
}
// A permutation of 32 bits that looks like chance (a multiplication and shifts, as in MurmurHash3).
FATHOM_HD constexpr uint32_t scrambled(uint32_t x) {
  x = (x ^ x >> 16) * 0x85EBCA6Bu;
  x = (x ^ x >> 13) * 0xC2B2AE35u;
  return x ^ x >> 16;
}

enum class Pattern {
  sequential,      // neighbouring threads read neighbouring vectors
  strided,         // neighbouring threads read neighbouring lines, and the rest of a line 32 steps later
  random_lines,    // eight threads read a line, which is drawn at random
  random_vectors,  // each thread reads a vector of its own, which is drawn at random
};

// The vector of read number `at` in a table of so many vectors, a power of two and at least 8.
template <Pattern kPattern>
FATHOM_HD constexpr uint32_t vector_of(uint32_t at, uint32_t vectors) {
  const uint32_t lines = vectors / kPerLine;
  if (kPattern == Pattern::sequential) return at & (vectors - 1);
  if (kPattern == Pattern::strided) {
    const uint32_t of_block = at % kStretch, line = of_block % (kStretch / kPerLine);
    return (at - of_block + line * kPerLine + of_block / (kStretch / kPerLine)) & (vectors - 1);
  }
  if (kPattern == Pattern::random_lines)
    return (scrambled(at / kPerLine) & (lines - 1)) * kPerLine + at % kPerLine;
  return scrambled(at) & (vectors - 1);
}

struct Reads {
  Pattern pattern;
  View<const uint32_t, 1> table;
  View<uint32_t, 1> out;  // of each thread

  Reads(const Point& at, Arena& arena);
  Cost cost() const;
  int64_t expected(int64_t thread) const;
};

FATHOM_CUDA_LAUNCHER void past_l1(const Reads& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void through_l1(const Reads& p, StreamRef stream);

}  // namespace fathom::lab::memory_bandwidth
