// Loops that only move bytes, which measure the bandwidth of a level of the memory hierarchy.
//
// bytes   read, write: `bytes` a pass; copy: `bytes` read and `bytes` written a pass
// limit   the level that holds source and target
// idea    whole vectors, 8 or 16 a step, with enough sums to hide the latency of the adder
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fathom::machine {

enum class Traffic { read, write, write_nontemporal, copy, copy_nontemporal };
inline constexpr int kTraffics = 5;

// Every kernel works in steps of this many bytes: `bytes` is a multiple, addresses are aligned to 64.
inline constexpr int64_t kStreamStep = 1024;

// Makes `passes` passes over target and source. Reads return the exclusive or of all 64-bit words of all
// passes and ignore the target; the others return 0, and writes ignore the source. Non-temporal stores are
// fenced.
using StreamKernel = uint64_t (*)(std::byte* target, const std::byte* source, int64_t bytes, int64_t passes);

struct StreamKernels {
  const char* name;            // instruction set and access order
  StreamKernel of[kTraffics];  // indexed by Traffic; null where the ISA has no such instruction
};

extern const StreamKernels kStreamPortable;  // 128-bit vectors of the compiler
// Four concurrent ranges keep more DRAM pages open and more prefetchers busy; one range is shorter code.
extern const StreamKernels kStreamAvx2, kStreamAvx2FourWays;
extern const StreamKernels kStreamAvx512, kStreamAvx512FourWays;  // need avx512f

// Those that this machine can run, widest vectors last.
std::vector<const StreamKernels*> runnable_stream_kernels();

// Follows `loads` pointers from `start`, each load depending on the previous one; returns the last address.
void* const* chase(void* const* start, int64_t loads);

}  // namespace fathom::machine
