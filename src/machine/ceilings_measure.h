// Measuring the ceilings of machine/ceilings.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "machine/ceilings.h"

namespace fathom::machine {

struct Effort {
  int trials         = 15;         // of each quantity
  double trial_s     = 0.006;      // minimum length of a trial
  int64_t dram_bytes = 0;          // DRAM working set of all threads; 0: four times the last-level cache
  int64_t disk_bytes = 192 << 20;  // of the test file; 0: no disk measurement
  std::string folder;              // of the test file
};

using ProgressLine = std::function<void(std::string_view)>;

Ceilings measure_ceilings(const Effort& effort, const ProgressLine& progress);

// One entry.
Bandwidth measure_bandwidth(Level level, Traffic traffic, int threads, const Effort& effort);
// Of the fastest instruction set.
ArithmeticPeak measure_peak(DType dtype, int threads, const Effort& effort);

// Reads a file that it creates, and deletes, in effort.folder.
std::vector<DiskRate> measure_disk(const Effort& effort);

// Median with interval, and the best sample.
enum class Better { higher, lower };
Measured summarise(const std::vector<double>& samples, Better better);

// Working set for `level`, all threads together; 0 where the machine has no such level.
int64_t working_set_bytes(Level level, int threads, const Topology& machine, int64_t dram_bytes);

}  // namespace fathom::machine
