// CUPTI's Range Profiler on the current GPU: hardware counters of each kernel between start() and stop().
// Every kernel is a range of its own, replayed with its memory restored until all passes are made. Only a
// build with CUDA compiles this.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "cuda/cupti.h"
#include "machine/counter_config.h"

namespace fathom::machine {

// The current GPU as CUPTI's profilers see it.
struct ProfiledGpu {
  CUcontext context = nullptr;
  std::string chip;  // "GH100"
};

// `api`: range profiling or PM sampling. An error says why this GPU, driver or machine does not allow it.
Result<ProfiledGpu> profiled_gpu(const Cupti& cupti, CUpti_Profiler_API api);

// Which counters this driver and user may read, for CounterConfig::create(). The first call that fails where
// the driver keeps counters to administrators.
Result<std::vector<uint8_t>> available_counters(const Cupti& cupti, CUcontext context);

class RangeProfiler {
 public:
  explicit RangeProfiler(const Cupti& cupti) : cupti_(cupti) {}
  RangeProfiler(const RangeProfiler&)            = delete;
  RangeProfiler& operator=(const RangeProfiler&) = delete;
  ~RangeProfiler();  // stops and disables

  // In this order, each once.
  Status enable(CUcontext context);
  Status configure(CounterConfig& config, size_t max_ranges);
  Status start();
  Result<bool> stop();      // whether every pass was made
  Result<size_t> decode();  // how many ranges did not fit

  Result<size_t> ranges() const;
  const std::vector<uint8_t>& data() const { return data_; }  // for CounterConfig::values()

 private:
  const Cupti& cupti_;
  CUpti_RangeProfiler_Object* object_ = nullptr;
  bool started_                       = false;
  std::vector<uint8_t> data_;
};

}  // namespace fathom::machine
