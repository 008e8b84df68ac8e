// Where a CPU spends the time of a call: a timer of the process's CPU time interrupts whatever runs, about
// every 4 ms (the kernel's tick), and the interrupted thread notes where it was. That needs no permission;
// hardware counters come along where this machine has them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace fathom::profile {

struct CpuSample {
  int64_t at_ns     = 0;  // of measure::Clock::wall
  int thread        = 0;  // the system's thread id
  uintptr_t address = 0;  // of the instruction that comes next
};

struct CpuCall {
  int64_t start_ns = 0, end_ns = 0;
};

// All numbers are of the whole watch, in which a call was made again and again.
struct CpuActivity {
  std::vector<CpuCall> calls;
  std::vector<CpuSample> samples;  // in order of time
  double cpu_s         = 0;        // of all threads
  int64_t minor_faults = 0, major_faults = 0;
  int64_t waits                          = 0;   // voluntary context switches
  int64_t interruptions                  = 0;   // involuntary ones
  std::map<std::string, double> counters = {};  // of profile/cpu_counters.h; empty where there are none
  std::vector<std::string> notes         = {};
};

// Makes calls until they have used `cpu_s` seconds of CPU time or lasted four times as long. One at a time in
// a process. Exceptions of `call` pass through.
CpuActivity watch_cpu(const std::function<void()>& call, double cpu_s);

// "transpose_cpu::tiled" in this program, "sgemm_kernel (libopenblas.so.0)" in a library, or the module and
// offset where it has no name.
std::string function_at(uintptr_t address);

}  // namespace fathom::profile
