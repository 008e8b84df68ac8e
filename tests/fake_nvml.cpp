// A libnvidia-ml.so.1 with two made-up GPUs, for tests of what reads NVML where there is none.
//
// $FAKE_NVML_STATE names a file that says how it behaves from its next call on:
//   ok              as a driver does
//   unsupported     every query of a sensor is refused
//   slow N          every query takes N ms
//   hang            no query returns
//   lost            GPU 1 has fallen off the bus
//   broken          the driver does not start
// With FAKE_NVML_OLD it is a driver of 2016, without the functions that came later.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6, kDriverNotLoaded = 9,
              kGpuIsLost = 15;
constexpr unsigned kGpus = 2;

int numbers[kGpus] = {0, 1};  // a handle is the address of a GPU's number

int number_of(void* gpu) { return *static_cast<int*>(gpu); }

std::string state(int* argument = nullptr) {
  const char* file = std::getenv("FAKE_NVML_STATE");
  std::ifstream in(file ? file : "");
  std::string word;
  int number = 0;
  in >> word >> number;
  if (argument) *argument = number;
  return word;
}

// What happens to a query of this GPU before it is answered.
int enter(void* gpu) {
  int ms                = 0;
  const std::string now = state(&ms);
  if (now == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  while (now == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
  if (now == "lost" && number_of(gpu) == 1) return kGpuIsLost;
  return now == "unsupported" ? kNotSupported : kSuccess;
}

template <class Value>
int answer(void* gpu, Value* value, Value says) {
  const int status = enter(gpu);
  if (status == kSuccess) *value = says;
  return status;
}

int copied(const std::string& says, char* text, unsigned size) {
  if (says.size() >= size) return 7;  // insufficient size
  std::memcpy(text, says.c_str(), says.size() + 1);
  return kSuccess;
}

std::string uuid_of(int number) { return "GPU-10000000-0000-0000-0000-00000000000" + std::to_string(number); }

constexpr unsigned long long kGib = 1ull << 30;

// Grows with every query, as a counter does: 1 J a query.
std::atomic<unsigned long long> millijoules{5'000'000};
std::atomic<unsigned long long> kib{1000};

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
struct Field {
  unsigned id, scope;
  long long timestamp, latency_us;
  int type, status;
  union {
    unsigned u;
    unsigned long long ull;
  } value;
};

}  // namespace

extern "C" {

int nvmlInit_v2() { return state() == "broken" ? kDriverNotLoaded : kSuccess; }
const char* nvmlErrorString(int status) {
  return status == kDriverNotLoaded ? "Driver Not Loaded" : "made-up error";
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return copied("0.0 (made up)", text, size); }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = kGpus;
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** gpu) {
  if (index >= kGpus) return kInvalidArgument;
  *gpu = &numbers[index];
  return kSuccess;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** gpu) {
  for (int& number : numbers)
    if (uuid_of(number) == uuid) {
      *gpu = &number;
      return kSuccess;
    }
  return kNotFound;
}
int nvmlDeviceGetName(void*, char* text, unsigned size) { return copied("Made-up GPU", text, size); }
int nvmlDeviceGetUUID(void* gpu, char* text, unsigned size) {
  return copied(uuid_of(number_of(gpu)), text, size);
}
int nvmlDeviceGetIndex(void* gpu, unsigned* index) {
  *index = static_cast<unsigned>(number_of(gpu));
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(void* gpu, Memory* memory) {
  return answer(gpu, memory, {80 * kGib, 59 * kGib, 21 * kGib});
}
int nvmlDeviceGetUtilizationRates(void* gpu, Utilization* rates) { return answer(gpu, rates, {93, 41}); }
int nvmlDeviceGetTemperature(void* gpu, int, unsigned* degrees) { return answer(gpu, degrees, 55u); }
int nvmlDeviceGetClockInfo(void* gpu, int clock, unsigned* mhz) {
  return answer(gpu, mhz, clock == 1 ? 1755u : 2619u);
}
int nvmlDeviceGetPowerUsage(void* gpu, unsigned* milliwatts) { return answer(gpu, milliwatts, 345'600u); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void* gpu, unsigned long long* reasons) {
  return answer(gpu, reasons, 0x24ull);  // SW power cap, SW thermal slowdown
}

#ifndef FAKE_NVML_OLD
int nvmlDeviceGetMemoryInfo_v2(void* gpu, MemoryV2* memory) {
  if (memory->version != (sizeof(MemoryV2) | 2u << 24)) return kInvalidArgument;
  return answer(gpu, memory, {memory->version, 80 * kGib, 1 * kGib, 59 * kGib, 20 * kGib});
}
int nvmlDeviceGetTotalEnergyConsumption(void* gpu, unsigned long long* energy) {
  return answer(gpu, energy, millijoules += 1000);
}
int nvmlDeviceGetCurrentClocksEventReasons(void* gpu, unsigned long long* reasons) {
  return answer(gpu, reasons, 0x4ull);  // SW power cap
}
int nvmlDeviceGetFieldValues(void* gpu, int count, Field* fields) {
  const int status = enter(gpu);
  if (status != kSuccess) return status;
  for (int i = 0; i < count; ++i) {
    fields[i].status = kSuccess;
    if (fields[i].id == 186)  // instantaneous power, mW
      fields[i].value.u = 350'000;
    else if (fields[i].id == 138 || fields[i].id == 139)  // NVLink, KiB sent and received
      fields[i].value.ull = kib += 1;
    else
      fields[i].status = kNotSupported;
  }
  return kSuccess;
}
#endif

}  // extern "C"
