#include "machine/gpu.h"

#include <fmt/format.h>

namespace fathom::machine {

HostMemory host_memory(const GpuFacts& facts) {
  if (!facts.pageable_access) return HostMemory::staged;
  return facts.host_page_tables ? HostMemory::coherent : HostMemory::migrated;
}

std::string_view to_string(HostMemory kind) {
  constexpr std::string_view kNames[] = {"staged", "migrated", "coherent"};
  return kNames[static_cast<int>(kind)];
}

std::string_view strategy(HostMemory kind) {
  constexpr std::string_view kSentences[] = {
      "Kernels cannot touch pageable memory: copy through page-locked buffers, or page-lock what they read.",
      "Kernels may follow host pointers, but pages move by faults: copy what is read more than once.",
      "CPU and GPU share one address space by the line: large cold data can stay in the host's memory, and a "
      "copy pays only where it is read again."};
  return kSentences[static_cast<int>(kind)];
}

std::string superchip(const GpuFacts& facts) {
  // GPUs of these generations use the host's page tables only over NVLink-C2C, never over PCIe.
  if (host_memory(facts) != HostMemory::coherent) return {};
  return facts.major == 9 ? "Grace Hopper" : facts.major >= 10 ? "Grace Blackwell" : "";
}

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace fathom::machine
