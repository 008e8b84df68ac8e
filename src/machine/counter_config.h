// The host half of CUPTI's profilers, which needs no GPU: how many passes a list of counters takes on a chip,
// and the values of raw counter data. Only a build with CUDA compiles this.
#pragma once

#include <cupti_profiler_host.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "cuda/cupti.h"

namespace fathom::machine {

class CounterConfig {
 public:
  // `available`: the counters that a live GPU offers, empty to assume all of the chip's. An error names the
  // counters that the chip does not have.
  static Result<CounterConfig> create(const Cupti& cupti, const std::string& chip,
                                      std::vector<std::string> names,
                                      const std::vector<uint8_t>& available = {},
                                      CUpti_ProfilerType profiler = CUPTI_PROFILER_TYPE_RANGE_PROFILER);
  CounterConfig(CounterConfig&& other) noexcept;
  CounterConfig& operator=(CounterConfig&&) = delete;
  ~CounterConfig();

  int passes() const { return passes_; }
  const std::vector<std::string>& names() const { return names_; }
  std::vector<const char*> name_pointers() const;
  std::vector<uint8_t>& image() { return image_; }  // to configure the GPU with

  // Of one range of decoded counter data, in the order of names().
  Result<std::vector<double>> values(const std::vector<uint8_t>& counter_data, size_t range) const;

 private:
  CounterConfig(const Cupti& cupti, CUpti_Profiler_Host_Object* host, std::vector<std::string> names)
      : cupti_(&cupti), host_(host), names_(std::move(names)) {}

  const Cupti* cupti_;
  CUpti_Profiler_Host_Object* host_;
  std::vector<std::string> names_;
  std::vector<uint8_t> image_;
  int passes_ = 0;
};

}  // namespace fathom::machine
