// Theoretical occupancy: how many warps of a kernel fit a multiprocessor at once, and what keeps more out.
// Source: CUDA C++ Programming Guide, "Compute Capabilities" (limits) and cuda_occupancy.h (granularities).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/profiler.h"

namespace fathom::profile {

// What one multiprocessor holds at most.
struct GpuFacts {
  int warps             = 0;
  int blocks            = 0;
  int registers         = 0;  // a quarter of them in each of its four partitions
  int64_t shared        = 0;  // bytes, where the L1 cache leaves it all it can
  int64_t shared_of_one = 0;  // bytes that one block may ask for
};

// Of a compute capability: 80, 86, 89, 90, 100, 103, 120. Absent for others.
std::optional<GpuFacts> gpu_facts(int compute_capability);

enum class Limiter { warps, blocks, registers, shared_memory };
inline constexpr int kLimiters = 4;

struct Occupancy {
  int blocks   = 0;  // on one multiprocessor; 0: such a launch is refused
  int warps    = 0;
  double share = 0;                        // of the warps it can hold
  std::array<int, kLimiters> blocks_by{};  // that each limiter alone would let in
  std::vector<Limiter> limiters;           // those that let in no more; `warps` alone where it is full
};

// Named barriers and cluster placement are not looked at: launch records do not say what they take.
Occupancy theoretical_occupancy(const GpuFacts& gpu, int64_t threads, int registers, int64_t shared);

std::string to_string(const std::vector<Limiter>& limiters);  // "registers and shared memory"

// Fills in occupancy and limiter where the chip is known.
void add_occupancy(lab::KernelRecord& kernel, int compute_capability);

}  // namespace fathom::profile
