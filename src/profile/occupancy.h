// Theoretical occupancy: how many warps of a kernel fit on a multiprocessor at once, and the limiting
// resource. Source: CUDA C++ Programming Guide, "Compute Capabilities" (limits) and cuda_occupancy.h
// (granularities).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/profiler.h"

namespace fathom::profile {

// Limits of one multiprocessor.
struct GpuFacts {
  int warps             = 0;
  int blocks            = 0;
  int registers         = 0;  // a quarter of them in each of its four partitions
  int64_t shared        = 0;  // bytes, with the largest shared-memory carveout
  int64_t shared_of_one = 0;  // bytes of one block
};

// For a compute capability: 80, 86, 89, 90, 100, 103, 120. Absent for others.
std::optional<GpuFacts> gpu_facts(int compute_capability);

enum class Limiter { warps, blocks, registers, shared_memory };
inline constexpr int kLimiters = 4;

struct Occupancy {
  int blocks   = 0;  // on one multiprocessor; 0: such a launch fails
  int warps    = 0;
  double share = 0;                        // of the maximum number of warps
  std::array<int, kLimiters> blocks_by{};  // allowed by each limiter alone
  std::vector<Limiter> limiters;           // the tightest; `warps` alone at full occupancy
};

// Ignores named barriers and cluster placement, which launch records do not contain.
Occupancy theoretical_occupancy(const GpuFacts& gpu, int64_t threads, int registers, int64_t shared);

std::string to_string(const std::vector<Limiter>& limiters);  // "registers and shared memory"

// Sets occupancy and limiter of a kernel where the chip is known.
void add_occupancy(lab::KernelRecord& kernel, int compute_capability);

}  // namespace fathom::profile
