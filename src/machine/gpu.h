// Facts about a GPU of this process; machine/gpu_ceilings.h has what it has been measured to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/device_id.h"

namespace fathom::machine {

struct GpuFacts {
  std::string name;          // "NVIDIA H200"
  std::string uuid;          // "GPU-12345678-...", as NVML and CUDA_VISIBLE_DEVICES spell it
  std::string pci_address;   // "0000:01:00.0"
  int index = 0, count = 1;  // its ordinal among the visible GPUs, and how many are visible
  int major = 0, minor = 0;  // compute capability

  int multiprocessors                     = 0;
  int threads_per_multiprocessor          = 0;
  int registers_per_multiprocessor        = 0;  // of 32 bits
  int64_t shared_bytes_per_multiprocessor = 0;
  int64_t shared_bytes_per_block          = 0;  // maximum of a block, by opt-in
  int64_t l2_bytes                        = 0;
  int64_t memory_bytes                    = 0;
  int memory_bus_bits                     = 0;
  double max_clock_hz = 0, max_memory_clock_hz = 0;
  int copy_engines = 0;
  std::optional<int> pcie_generation, pcie_lanes;  // the maximum of card and slot, by NVML

  std::string driver;  // "580.159.04"; empty where NVML does not report it
  int driver_cuda  = 0,
      runtime_cuda = 0;  // 13000 is CUDA 13.0: the driver's newest version, and the runtime's

  bool cluster_launch        = false;
  bool pageable_access       = false;  // kernels may access pageable host memory ...
  bool host_page_tables      = false;  // ... through the host's page tables
  bool direct_managed_access = false;  // the host accesses managed memory on the GPU without migration
  int memory_numa_node       = -1;     // the host's NUMA node that is the GPU's memory; -1: none
  int host_numa_node         = -1;     // the host's closest NUMA node

  std::vector<std::vector<bool>> peer_access;  // [from][to]: `from` can access the memory of `to`

  int capability() const { return 10 * major + minor; }  // 90
  bool tma() const { return major >= 9; }
  bool wgmma() const { return capability() == 90; }  // Hopper only
  bool fp8_tensor() const { return capability() >= 89; }
  bool fp4_tensor() const { return major >= 10; }
  // Not on workstation Blackwell, 12.x.
  bool tcgen05() const { return major == 10 || major == 11; }
  // The datasheet's: two transfers a clock.
  double dram_bytes_per_s() const { return 2 * max_memory_clock_hz * memory_bus_bits / 8; }
};

// Null where there is none; then why_no_gpu() says why, in a sentence. Asks the driver but makes no context,
// so that a process that only lists or reports takes no memory of the GPU. Read once for each GPU.
const GpuFacts* gpu(DeviceId device = {});
std::string why_no_gpu(DeviceId device = {});

// How kernels access the host's pageable memory.
enum class HostMemory {
  staged,    // not at all: memory must be page-locked or copied
  migrated,  // pages migrate by faults (Linux's heterogeneous memory management)
  coherent,  // cache line by cache line through the host's page tables: NVLink-C2C of a Grace superchip
};
HostMemory host_memory(const GpuFacts& facts);
std::string_view to_string(HostMemory kind);  // "coherent"
std::string_view strategy(HostMemory kind);   // advice to programmers, in a sentence

// "Grace Hopper", "Grace Blackwell", or empty: the GPU shares no address space with its CPU by NVLink-C2C.
std::string superchip(const GpuFacts& facts);

std::string cuda_version_text(int version);  // 13000: "13.0"

}  // namespace fathom::machine
