// Which NICs a GPU uses: `fathom launch --nets-per-gpu`.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"

namespace fathom::launch {

// A device and its place in the tree of PCI bridges, as /sys/devices names it:
// "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0".
struct PciDevice {
  std::string name, path;
};

// For each GPU the names of the `count` NICs that share the most bridges with it, from the nearest on. Among
// equally near ones those that serve fewer GPUs come first, then those whose name comes first. An error where
// there are fewer than `count`.
Result<std::vector<std::vector<std::string>>> nearest_nics(const std::vector<PciDevice>& gpus,
                                                           const std::vector<PciDevice>& nics, int count);

}  // namespace fathom::launch
