// The walk of one chain. Where a step's word comes from is the variant's.
#pragma once

#include "cuda/check.h"
#include "walk.h"

namespace fathom::lab::memory_hierarchy {

inline constexpr int kWarps   = 4;  // of a block, a chain each: four loads in flight do not queue anywhere
inline constexpr int kThreads = 32 * kWarps;

// `word(p)` returns the table's word at byte p. Beside it a step has one logical instruction in the chain,
// and what the variant needs for an address.
template <class Word>
__device__ inline uint32_t walk(uint32_t chain, uint32_t mask, Word word) {
  uint32_t at = start_of(chain) & mask, key = first_key(chain);
#pragma unroll 16
  for (int step = 0; step < kSteps; ++step) {
    at = (word(at) ^ key) & mask;
    key += kKeyStep;
  }
  return at;
}

// Through L1 and L2. Volatile: the compiler must not reorder or combine them.
__device__ inline uint32_t load_through_l1(const char* from) {
  uint32_t word;
  asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(word) : "l"(from));
  return word;
}
// From L2.
__device__ inline uint32_t load_past_l1(const char* from) {
  uint32_t word;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(word) : "l"(from));
  return word;
}

// Rounds a position down to a line of a table of so many bytes.
inline uint32_t mask_of(int64_t bytes) { return static_cast<uint32_t>(bytes - kLine); }

// Kernels take (table, bytes, mask, out, chains).
template <class Kernel>
void launch(Kernel* kernel, const View<const uint32_t, 1>& table, const Walk& p, int shared_bytes,
            StreamRef stream) {
  const int64_t chains = p.out.size();
  if (chains == 0) return;
  FATHOM_EXPECT(table.bytes() > 0 && table.bytes() <= int64_t{1} << 32, "positions are 32-bit");
  kernel<<<blocks_for(chains, kWarps), kThreads, shared_bytes, stream>>>(
      reinterpret_cast<const char*>(table.data()), table.bytes(), mask_of(table.bytes()), p.out.data(),
      static_cast<int>(chains));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::memory_hierarchy
