// The energy of CPUs and their memory: RAPL (running average power limit), as Linux shows it in
// /sys/class/powercap.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

namespace fathom::machine {

// What one zone has consumed since the counters were opened.
struct CpuEnergy {
  std::string zone;       // "package-0", "package-0/dram"
  bool memory   = false;  // of DRAM, which is not in its package's
  double joules = 0;
};

// The packages and their DRAM. Zones within a package (core, uncore) would count twice, and so would psys,
// which is the whole board. A zone is absent where its counter cannot be read: Linux shows it to root alone,
// and container runtimes hide the folder.
class RaplCounters {
 public:
  explicit RaplCounters(std::filesystem::path powercap = "/sys/class/powercap");

  bool empty() const { return zones_.empty(); }

  // From any thread. The hardware's counters start again at 0 after some minutes of full load: energy is lost
  // where nobody reads for that long. A zone that became unreadable keeps its value.
  std::vector<CpuEnergy> read();

 private:
  struct Zone {
    std::filesystem::path file;
    int64_t range_uj = 0;  // the counter's value before it starts at 0 again
    int64_t last_uj  = 0;
    int64_t total_uj = 0;
    std::string name;
    bool memory = false;
  };

  std::mutex mutex_;
  std::vector<Zone> zones_;
};

}  // namespace fathom::machine
