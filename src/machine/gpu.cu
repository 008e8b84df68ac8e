// The facts of machine/gpu.h from the CUDA runtime, by calls that make no context.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <array>
#include <mutex>
#include <string>

#include "cuda/check.h"
#include "cuda/device_name.h"
#include "machine/gpu.h"
#include "machine/nvml.h"

namespace fathom::machine {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, device) == cudaSuccess) return value;
  (void)cudaGetLastError();  // the driver is older than the attribute
  return which == cudaDevAttrNumaId || which == cudaDevAttrHostNumaId ? -1 : 0;
}

std::string uuid_text(const cudaUUID_t& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text         = "GPU-";
  for (int i = 0; i < 16; ++i) {
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

GpuFacts read_facts(int device, int count) {
  cudaDeviceProp properties;
  FATHOM_CUDA(cudaGetDeviceProperties(&properties, device));
  GpuFacts facts;
  facts.name  = properties.name;
  facts.uuid  = uuid_text(properties.uuid);
  facts.index = device;
  facts.count = count;
  facts.major = properties.major;
  facts.minor = properties.minor;

  char address[32] = {};
  FATHOM_CUDA(cudaDeviceGetPCIBusId(address, sizeof address, device));
  facts.pci_address = address;

  facts.multiprocessors                 = properties.multiProcessorCount;
  facts.threads_per_multiprocessor      = properties.maxThreadsPerMultiProcessor;
  facts.registers_per_multiprocessor    = properties.regsPerMultiprocessor;
  facts.shared_bytes_per_multiprocessor = static_cast<int64_t>(properties.sharedMemPerMultiprocessor);
  facts.shared_bytes_per_block          = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  facts.l2_bytes                        = properties.l2CacheSize;
  facts.memory_bytes                    = static_cast<int64_t>(properties.totalGlobalMem);
  facts.memory_bus_bits                 = properties.memoryBusWidth;
  facts.copy_engines                    = properties.asyncEngineCount;
  // In kHz. CUDA 13 has removed both from cudaDeviceProp.
  facts.max_clock_hz        = 1e3 * attribute(cudaDevAttrClockRate, device);
  facts.max_memory_clock_hz = 1e3 * attribute(cudaDevAttrMemoryClockRate, device);

  facts.cluster_launch        = attribute(cudaDevAttrClusterLaunch, device) != 0;
  facts.pageable_access       = attribute(cudaDevAttrPageableMemoryAccess, device) != 0;
  facts.host_page_tables      = attribute(cudaDevAttrPageableMemoryAccessUsesHostPageTables, device) != 0;
  facts.direct_managed_access = attribute(cudaDevAttrDirectManagedMemAccessFromHost, device) != 0;
  facts.host_numa_node        = attribute(cudaDevAttrHostNumaId, device);
  if (attribute(cudaDevAttrNumaConfig, device) == cudaDeviceNumaConfigNumaNode)
    facts.memory_numa_node = attribute(cudaDevAttrNumaId, device);

  FATHOM_CUDA(cudaDriverGetVersion(&facts.driver_cuda));
  FATHOM_CUDA(cudaRuntimeGetVersion(&facts.runtime_cuda));
  facts.driver = nvml_driver_version();
  if (const Result<NvmlGpu> sensors = nvml_gpu(facts.uuid)) {
    facts.pcie_generation = sensors->pcie_generation();
    facts.pcie_lanes      = sensors->pcie_lanes();
  }

  facts.peer_access.assign(count, std::vector<bool>(count));
  for (int from = 0; from < count; ++from)
    for (int to = 0; to < count; ++to) {
      int reaches = 0;
      if (from != to) FATHOM_CUDA(cudaDeviceCanAccessPeer(&reaches, from, to));
      facts.peer_access[from][to] = reaches != 0;
    }
  return facts;
}

struct Found {
  std::once_flag once;
  std::optional<GpuFacts> facts;
  std::string why_not;
};

void find(Found& found, DeviceId device) {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!driver) {
    found.why_not = "no NVIDIA driver is installed: libcuda.so.1 does not load";
    return;
  }
  dlclose(driver);
  int count               = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    found.why_not = std::string("the driver shows no GPU: ") + cudaGetErrorString(error);
  } else if (count == 0) {
    found.why_not = "the driver shows no GPU: is CUDA_VISIBLE_DEVICES empty?";
  } else if (device.ordinal >= count) {
    found.why_not = no_such_device(device, count);
  } else {
    try {
      found.facts = read_facts(device.ordinal, count);
    } catch (const std::exception& problem) {
      found.why_not = problem.what();
    }
  }
}

const Found& found(DeviceId device) {
  FATHOM_EXPECT(device.ordinal >= 0 && device.ordinal < kMaxGpus, to_string(device) + " is no device");
  static std::array<Found, kMaxGpus> all;
  Found& one = all[static_cast<size_t>(device.ordinal)];
  std::call_once(one.once, find, one, device);
  return one;
}

}  // namespace

const GpuFacts* gpu(DeviceId device) {
  const Found& one = found(device);
  return one.facts ? &*one.facts : nullptr;
}
std::string why_no_gpu(DeviceId device) { return found(device).why_not; }

}  // namespace fathom::machine
