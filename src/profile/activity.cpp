#include "profile/activity.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "cuda/check.h"
#include "cuda/cupti.h"
#include "cuda/device.h"
#include "cuda/range_log.h"
#include "profile/kernel_name.h"
#include "profile/occupancy.h"

namespace fathom::profile {
namespace {

constexpr size_t kBufferBytes = 4 << 20;
constexpr size_t kAlignment   = 8;

constexpr CUpti_ActivityKind kKinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,  // first: without kernels the rest is useless
    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_RUNTIME,
    CUPTI_ACTIVITY_KIND_DRIVER};

const char* copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "copy host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "copy device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "copy on device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
      return "copy on host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "copy between devices";
    default:
      return "copy";
  }
}

// CUPTI delivers full buffers on its own thread, without user data, so this is a singleton. It is never
// destroyed, because the last buffers may come when the process ends.
class Collector {
 public:
  static Collector& get() {
    static Collector* const collector = new Collector;
    return *collector;
  }

  void start(const Cupti& cupti) {
    const std::lock_guard lock(mutex_);
    cupti_     = &cupti;
    activity_  = {};
    lost_      = 0;
    recording_ = true;
  }
  Activity take(int64_t& lost) {
    const std::lock_guard lock(mutex_);
    recording_ = false;
    lost       = lost_;
    return std::move(activity_);
  }

  // Always provides a buffer: before API 27 CUPTI crashed without one. With a null buffer it drops records,
  // and counts them.
  static void CUPTIAPI give(uint8_t** buffer, size_t* bytes, size_t* max_records) {
    *buffer      = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
    *bytes       = *buffer ? kBufferBytes : 0;
    *max_records = 0;  // as many as fit
  }
  static void CUPTIAPI take_back(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
    if (buffer && valid > 0) get().read(buffer, valid);
    std::free(buffer);
  }

 private:
  // Called from C, so it must not throw.
  void read(uint8_t* buffer, size_t valid) noexcept {
    const std::lock_guard lock(mutex_);
    if (!recording_) return;
    CUpti_Activity* record = nullptr;
    while (cupti_->cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
      try {
        add(*record);
      } catch (...) {
        ++lost_;
      }
    }
  }

  // Casts copy the fields: records are packed, so a reference to a field may be misaligned.
  void add(const CUpti_Activity& record) {
    switch (record.kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return add_kernel(reinterpret_cast<const CUpti_ActivityKernel10&>(record));
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpy6&>(record);
        return add_copy(copy, copy_name(copy.copyKind), copy.deviceId);
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY2: {
        const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpyPtoP4&>(record);
        return add_copy(copy, copy_name(CUPTI_ACTIVITY_MEMCPY_KIND_PTOP), copy.deviceId);
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto& set = reinterpret_cast<const CUpti_ActivityMemset4&>(record);
        return add_copy(set, "set", set.deviceId);
      }
      case CUPTI_ACTIVITY_KIND_RUNTIME:
      case CUPTI_ACTIVITY_KIND_DRIVER:
        return add_host_call(reinterpret_cast<const CUpti_ActivityAPI&>(record));
      default:
        return;
    }
  }

  void add_kernel(const CUpti_ActivityKernel10& k) {
    lab::KernelRecord kernel;
    kernel.name           = readable_kernel_name(k.name);
    kernel.grid           = {k.gridX, k.gridY, k.gridZ};
    kernel.block          = {k.blockX, k.blockY, k.blockZ};
    kernel.cluster        = {std::max(1u, uint32_t{k.clusterX}), std::max(1u, uint32_t{k.clusterY}),
                             std::max(1u, uint32_t{k.clusterZ})};
    kernel.registers      = k.registersPerThread;
    kernel.static_shared  = k.staticSharedMemory;
    kernel.dynamic_shared = k.dynamicSharedMemory;
    kernel.local          = k.localMemoryPerThread;
    kernel.start_ns       = static_cast<int64_t>(k.start);
    kernel.end_ns         = static_cast<int64_t>(k.end);
    kernel.device         = static_cast<int>(k.deviceId);
    kernel.stream         = k.streamId;
    kernel.correlation    = k.correlationId;
    activity_.kernels.push_back(std::move(kernel));
  }

  template <class Record>
  void add_copy(const Record& copy, const char* name, uint32_t device) {
    activity_.copies.push_back({.name        = name,
                                .bytes       = static_cast<int64_t>(copy.bytes),
                                .start_ns    = static_cast<int64_t>(copy.start),
                                .end_ns      = static_cast<int64_t>(copy.end),
                                .device      = static_cast<int>(device),
                                .stream      = uint32_t{copy.streamId},
                                .correlation = uint32_t{copy.correlationId}});
  }

  void add_host_call(const CUpti_ActivityAPI& call) {
    const bool driver = call.kind == CUPTI_ACTIVITY_KIND_DRIVER;
    const char* name  = nullptr;
    (void)cupti_->cuptiGetCallbackName(driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API,
                                       call.cbid, &name);
    activity_.host_calls.push_back({.name        = readable_api_name(name ? name : "unnamed call"),
                                    .driver      = driver,
                                    .start_ns    = static_cast<int64_t>(call.start),
                                    .end_ns      = static_cast<int64_t>(call.end),
                                    .thread      = uint32_t{call.threadId},
                                    .correlation = uint32_t{call.correlationId}});
  }

  std::mutex mutex_;
  const Cupti* cupti_ = nullptr;
  Activity activity_;
  int64_t lost_   = 0;
  bool recording_ = false;
};

void CUPTIAPI ignore(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

// CUPTI's only subscription: subscribing first reveals another tool before it is disturbed.
class Subscription {
 public:
  explicit Subscription(const Cupti& cupti) : cupti_(cupti) {}
  Subscription(const Subscription&) = delete;
  ~Subscription() {
    if (handle_) (void)cupti_.cuptiUnsubscribe(handle_);
  }
  Status take() {
    char other[CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN] = {};
    FATHOM_CUPTI_PARAMS(CUpti_SubscriberParams, params);
    params.subscriberName    = "fathom";
    params.oldSubscriberName = other;
    params.oldSubscriberSize = sizeof other;
    const CUptiResult why    = cupti_.cuptiSubscribe_v2(&handle_, ignore, nullptr, &params);
    if (why == CUPTI_SUCCESS) return Ok{};
    handle_ = nullptr;
    if (why == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED && other[0])
      return Error{
          fmt::format("{} is attached to this process, and CUPTI serves one tool at a time: run "
                      "without it",
                      std::string_view(other, strnlen(other, sizeof other)))};
    return cupti_.refused("Subscribe", why);
  }

 private:
  const Cupti& cupti_;
  CUpti_SubscriberHandle handle_ = nullptr;
};

int64_t now(const Cupti& cupti) {
  uint64_t ns = 0;
  (void)cupti.cuptiGetTimestamp(&ns);
  return static_cast<int64_t>(ns);
}

int64_t steady_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Gpu describe(int device) {
  Gpu gpu;
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    (void)cudaGetLastError();  // clears the error, or the next launch would report it
    return gpu;
  }
  gpu.name               = properties.name;
  gpu.compute_capability = properties.major * 10 + properties.minor;
  gpu.multiprocessors    = properties.multiProcessorCount;
  return gpu;
}

void complete(Activity& activity) {
  const auto by_start = [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; };
  std::stable_sort(activity.kernels.begin(), activity.kernels.end(), by_start);
  std::stable_sort(activity.copies.begin(), activity.copies.end(), by_start);
  std::stable_sort(activity.host_calls.begin(), activity.host_calls.end(), by_start);
  for (const CopyRecord& copy : activity.copies)
    if (!activity.gpus.contains(copy.device)) activity.gpus[copy.device] = describe(copy.device);
  int64_t timeless = 0;
  for (lab::KernelRecord& kernel : activity.kernels) {
    if (!activity.gpus.contains(kernel.device)) activity.gpus[kernel.device] = describe(kernel.device);
    add_occupancy(kernel, activity.gpus[kernel.device].compute_capability);
    timeless += kernel.start_ns == 0 && kernel.end_ns == 0;
  }
  if (timeless > 0)
    activity.notes.push_back(
        fmt::format("{} of {} kernels have no times: CUPTI found no device memory for them", timeless,
                    activity.kernels.size()));
}

class CuptiWatch final : public ActivityWatch {
 public:
  explicit CuptiWatch(const Cupti& cupti) : cupti_(cupti), subscription_(cupti) {}
  ~CuptiWatch() override {
    for (const CUpti_ActivityKind kind : enabled_) (void)cupti_.cuptiActivityDisable(kind);
    flush();
  }

  Status start() {
    if (auto taken = subscription_.take(); !taken) return taken;
    (void)cupti_.cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
    if (const CUptiResult why = cupti_.cuptiActivityRegisterCallbacks(Collector::give, Collector::take_back);
        why != CUPTI_SUCCESS)
      return cupti_.refused("ActivityRegisterCallbacks", why);
    for (const CUpti_ActivityKind kind : kKinds) {
      const CUptiResult why = cupti_.cuptiActivityEnable(kind);
      if (why == CUPTI_SUCCESS) {
        enabled_.push_back(kind);
        continue;
      }
      const Error refused = cupti_.refused("ActivityEnable", why);
      if (kind == kKinds[0]) return refused;
      notes_.push_back(refused.message);
    }
    return Ok{};
  }

  Activity watch(const std::function<void()>& call) override {
    FATHOM_CUDA(cudaDeviceSynchronize());  // earlier launches are not part of the call
    flush();
    (void)dropped();
    Collector::get().start(cupti_);
    open_range_log();
    const int64_t start_ns = now(cupti_), steady_start_ns = steady_now();
    call();
    FATHOM_CUDA(cudaDeviceSynchronize());
    const int64_t end_ns = now(cupti_);
    flush();

    int64_t lost      = 0;
    Activity activity = Collector::get().take(lost);
    activity.start_ns = start_ns;
    activity.end_ns   = end_ns;
    activity.notes    = notes_;
    for (const LoggedRange& range : close_range_log())
      activity.ranges.push_back({range.name, range.start_ns - steady_start_ns + start_ns,
                                 range.end_ns - steady_start_ns + start_ns, range.thread});
    if (const int64_t all = dropped() + lost; all > 0)
      activity.notes.push_back(
          fmt::format("{} records were dropped for want of memory: times and counts are too low", all));
    complete(activity);
    if (activity.kernels.empty() && activity.copies.empty())
      activity.notes.push_back(
          "no kernel and no copy was seen: the call did nothing on a GPU, or launched a graph "
          "that was instantiated before the profiler came");
    return activity;
  }

 private:
  // Forced: includes incomplete records, which would otherwise appear in the next recording.
  void flush() {
    if (!enabled_.empty()) (void)cupti_.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  }
  // Records dropped since the last call.
  int64_t dropped() {
    size_t count = 0;
    (void)cupti_.cuptiActivityGetNumDroppedRecords(nullptr, 0, &count);
    return static_cast<int64_t>(count);
  }

  const Cupti& cupti_;
  Subscription subscription_;
  std::vector<CUpti_ActivityKind> enabled_;
  std::vector<std::string> notes_;
};

}  // namespace

Result<std::unique_ptr<ActivityWatch>> ActivityWatch::open() {
  if (const std::string tool = injected_tool(); !tool.empty())
    return Error{
        fmt::format("{} is injected into this process (CUDA_INJECTION64_PATH), and CUPTI serves one "
                    "tool at a time: run without it",
                    tool)};
  if (device_count() == 0) return Error{why_no_device({0})};
  const auto opened = Cupti::open();
  if (!opened) return opened.error();
  auto watch = std::make_unique<CuptiWatch>(**opened);
  if (auto started = watch->start(); !started) return started.error();
  return std::unique_ptr<ActivityWatch>(std::move(watch));
}

Result<Activity> watch_activity(const std::function<void()>& call) {
  const auto watch = ActivityWatch::open();
  if (!watch) return watch.error();
  return (*watch)->watch(call);
}

}  // namespace fathom::profile
