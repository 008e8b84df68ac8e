// The features of this machine. Each is tried, and a missing one has a reason in a sentence.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::machine {

enum class Feature {
  // Instruction sets, as far as the operating system enables them.
  sse2,
  avx,
  avx2,
  fma,
  f16c,
  avx_vnni,
  avx512f,
  avx512bw,
  avx512vl,
  avx512_vnni,
  avx512_bf16,
  avx512_fp16,
  amx_int8,  // with the operating system's permission to use tile registers
  amx_bf16,
  neon,
  // Profiling facilities of the CPU.
  perf_hardware,  // perf_event_open counts instructions, correctly
  perf_software,  // perf_event_open's task clock
  callgrind,      // valgrind is installed
  rusage_thread,  // context switches and page faults of one thread
  schedstat,      // time spent runnable but waiting
  pressure,       // pressure stall information (PSI) of the CPU
  // System interfaces.
  io_uring,
  transparent_huge_pages,
  // Libraries opened at run time.
  cuda_driver,
  openblas,
  onednn,
  // Of the first GPU of this process.
  tma,       // tensor maps and bulk copies between global and shared memory
  clusters,  // thread block clusters with distributed shared memory
  wgmma,     // Hopper's asynchronous tensor-core instruction
  fp8_tensor,
  fp4_tensor,
  blackwell,  // tcgen05 with its tensor memory, loads of 32 bytes
  c2c,        // NVLink-C2C: a coherent address space with the CPU (Grace)
  several_gpus,
};

enum class FeatureKind { instruction_set, profiling, system, library, gpu };

// Every feature, in the order of the enum.
const std::vector<Feature>& all_features();
std::string_view to_string(Feature feature);  // "avx2", "perf_hardware"
std::string_view describe(Feature feature);   // in a few words
FeatureKind kind(Feature feature);

// Absent when this machine has the feature; otherwise the reason, in a sentence. Tried once in a process, at
// the first call.
std::optional<std::string> missing(Feature feature);

}  // namespace fathom::machine
