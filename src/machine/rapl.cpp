#include "machine/rapl.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

namespace fathom::machine {
namespace {

namespace fs = std::filesystem;

std::optional<int64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  int64_t value = 0;
  if (in >> value && value >= 0) return value;
  return std::nullopt;
}

std::string word_in(const fs::path& file) {
  std::ifstream in(file);
  std::string word;
  in >> word;
  return word;
}

// "intel-rapl:0" is a package, "intel-rapl:0:1" a zone within it; AMD's packages have Intel's name too.
// intel-rapl-mmio is the same counter again.
bool is_zone(const std::string& folder) { return folder.starts_with("intel-rapl:"); }

}  // namespace

RaplCounters::RaplCounters(fs::path powercap) {
  std::error_code error;
  std::vector<std::string> folders;
  for (fs::directory_iterator entry(powercap, error), end; !error && entry != end; entry.increment(error))
    if (std::string name = entry->path().filename().string(); is_zone(name))
      folders.push_back(std::move(name));
  std::sort(folders.begin(), folders.end());
  for (const std::string& folder : folders) {
    std::string name   = word_in(powercap / folder / "name");
    const bool package = name.starts_with("package-"), memory = name == "dram";
    if (!package && !memory) continue;
    if (memory) {
      const std::string parent = word_in(powercap / folder.substr(0, folder.rfind(':')) / "name");
      name                     = (parent.empty() ? folder : parent) + "/dram";
    }
    const fs::path file = powercap / folder / "energy_uj";
    const auto range = number_in(powercap / folder / "max_energy_range_uj"), now = number_in(file);
    if (!range || !now) continue;
    zones_.push_back(
        {.file = file, .range_uj = *range, .last_uj = *now, .name = std::move(name), .memory = memory});
  }
}

std::vector<CpuEnergy> RaplCounters::read() {
  const std::lock_guard lock(mutex_);
  std::vector<CpuEnergy> energies;
  for (Zone& zone : zones_) {
    if (const auto now = number_in(zone.file)) {
      zone.total_uj += *now >= zone.last_uj ? *now - zone.last_uj : zone.range_uj - zone.last_uj + *now;
      zone.last_uj = *now;
    }
    energies.push_back(
        {.zone = zone.name, .memory = zone.memory, .joules = 1e-6 * static_cast<double>(zone.total_uj)});
  }
  return energies;
}

}  // namespace fathom::machine
