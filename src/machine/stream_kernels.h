// Loops that do nothing but move bytes, for measuring how fast a level of memory can be read and written.
//
// bytes   read, write: `bytes` a pass; copy: `bytes` read and `bytes` written a pass
// limit   the level that holds source and target
// idea    whole vectors, 8 or 16 a step, sums enough to hide the latency of the adder
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fathom::machine {

enum class Traffic { read, write, write_nontemporal, copy, copy_nontemporal };
inline constexpr int kTraffics = 5;

// Every kernel works in steps of this many bytes: `bytes` is a multiple, addresses are aligned to 64.
inline constexpr int64_t kStreamStep = 1024;

// Walks target and source `passes` times. Read returns the exclusive or of every 64-bit word it read, over
// all passes, and ignores the target; the others return 0, and the writes ignore the source. Non-temporal
// stores are fenced.
using StreamKernel = uint64_t (*)(std::byte* target, const std::byte* source, int64_t bytes, int64_t passes);

struct StreamKernels {
  const char* name;            // of the instructions, and how the range is walked
  StreamKernel of[kTraffics];  // indexed by Traffic; null where the ISA has no such instruction
};

extern const StreamKernels kStreamPortable;  // 128-bit vectors of the compiler
// Four ranges side by side give DRAM more open pages and prefetchers more to do; one range is shorter code.
extern const StreamKernels kStreamAvx2, kStreamAvx2FourWays;
extern const StreamKernels kStreamAvx512, kStreamAvx512FourWays;  // need avx512f

// Those whose instructions this machine has, widest last.
std::vector<const StreamKernels*> runnable_stream_kernels();

// Follows `loads` pointers from `start`, each load depending on the one before; returns where it ended.
void* const* chase(void* const* start, int64_t loads);

}  // namespace fathom::machine
