// What this process's GPU is: the CUDA runtime's current device, the first that CUDA_VISIBLE_DEVICES shows.
// Facts only; what it has been measured to do is in machine/gpu_ceilings.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::machine {

struct GpuFacts {
  std::string name;          // "NVIDIA H200"
  std::string uuid;          // "GPU-12345678-...", as NVML and CUDA_VISIBLE_DEVICES spell it
  std::string pci_address;   // "0000:01:00.0"
  int index = 0, count = 1;  // its place among the visible ones, and how many those are
  int major = 0, minor = 0;  // compute capability

  int multiprocessors                     = 0;
  int threads_per_multiprocessor          = 0;
  int registers_per_multiprocessor        = 0;  // of 32 bits
  int64_t shared_bytes_per_multiprocessor = 0;
  int64_t shared_bytes_per_block          = 0;  // the most a block can ask for
  int64_t l2_bytes                        = 0;
  int64_t memory_bytes                    = 0;
  int memory_bus_bits                     = 0;
  double max_clock_hz = 0, max_memory_clock_hz = 0;
  int copy_engines = 0;
  std::optional<int> pcie_generation, pcie_lanes;  // the most this card and its slot agree on, by NVML

  std::string driver;                     // "580.159.04"; empty where NVML does not say
  int driver_cuda = 0, runtime_cuda = 0;  // 13000 is CUDA 13.0: the newest the driver speaks, and ours

  bool cluster_launch        = false;
  bool pageable_access       = false;  // kernels may follow any pointer of the host ...
  bool host_page_tables      = false;  // ... through the host's own page tables
  bool direct_managed_access = false;  // the host reads managed memory on the device without migration
  int memory_numa_node       = -1;     // the GPU's memory is this NUMA node of the host; -1: it is none
  int host_numa_node         = -1;     // the node of the host that is closest

  std::vector<std::vector<bool>> peer_access;  // [from][to]: `from` can reach the memory of `to`

  int capability() const { return 10 * major + minor; }  // 90
  bool tma() const { return major >= 9; }
  bool wgmma() const { return capability() == 90; }  // Hopper alone has this instruction
  bool fp8_tensor() const { return capability() >= 89; }
  bool fp4_tensor() const { return major >= 10; }
  bool tcgen05() const { return major == 10 || major == 11; }  // not in the Blackwell of workstations, 12.x
  double dram_bytes_per_s() const {                            // of the datasheet: two transfers a clock
    return 2 * max_memory_clock_hz * memory_bus_bits / 8;
  }
};

// Null where there is none; then why_no_gpu() says why, in a sentence. Asks the driver but makes no context,
// so that a process that only lists or reports takes no memory of the GPU.
const GpuFacts* gpu();
std::string why_no_gpu();

// How kernels reach the host's plain memory, and how far a program may lean on it.
enum class HostMemory {
  staged,    // not at all: only what is page-locked or copied
  migrated,  // page by page, by faults (Linux's heterogeneous memory management)
  coherent,  // line by line through the host's page tables: NVLink-C2C of a Grace superchip
};
HostMemory host_memory(const GpuFacts& facts);
std::string_view to_string(HostMemory kind);  // "coherent"
std::string_view strategy(HostMemory kind);   // what to do about it, in a sentence

// "Grace Hopper", "Grace Blackwell", or empty: no GPU that shares an address space with its CPU by
// NVLink-C2C.
std::string superchip(const GpuFacts& facts);

std::string cuda_version_text(int version);  // 13000: "13.0"

}  // namespace fathom::machine
