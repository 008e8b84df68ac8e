#include "machine/counter_config.h"

#include <fmt/format.h>

#include <utility>

namespace fathom::machine {
namespace {

Result<CUpti_Profiler_Host_Object*> open_host(const Cupti& cupti, const std::string& chip,
                                              const std::vector<uint8_t>& available,
                                              CUpti_ProfilerType profiler) {
  FATHOM_CUPTI_PARAMS(CUpti_Profiler_Host_Initialize_Params, params);
  params.profilerType              = profiler;
  params.pChipName                 = chip.c_str();
  params.pCounterAvailabilityImage = available.empty() ? nullptr : available.data();
  if (const CUptiResult why = cupti.cuptiProfilerHostInitialize(&params); why != CUPTI_SUCCESS)
    return cupti.refused("ProfilerHostInitialize for " + chip, why);
  return params.pHostObject;
}

void close_host(const Cupti& cupti, CUpti_Profiler_Host_Object* host) {
  FATHOM_CUPTI_PARAMS(CUpti_Profiler_Host_Deinitialize_Params, params);
  params.pHostObject = host;
  (void)cupti.cuptiProfilerHostDeinitialize(&params);
}

// All in one call: counters that are added one by one get a pass each.
CUptiResult add(const Cupti& cupti, CUpti_Profiler_Host_Object* host, std::vector<const char*> names) {
  FATHOM_CUPTI_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params, params);
  params.pHostObject   = host;
  params.ppMetricNames = names.data();
  params.numMetrics    = names.size();
  return cupti.cuptiProfilerHostConfigAddMetrics(&params);
}

// CUPTI refuses the whole list and does not say for which name.
std::string unknown_names(const Cupti& cupti, const std::string& chip, const std::vector<const char*>& names,
                          const std::vector<uint8_t>& available, CUpti_ProfilerType profiler) {
  std::string unknown;
  for (const char* name : names) {
    const auto host = open_host(cupti, chip, available, profiler);
    if (!host) continue;
    if (add(cupti, *host, {name}) != CUPTI_SUCCESS)
      unknown += fmt::format("{}{}", unknown.empty() ? "" : ", ", name);
    close_host(cupti, *host);
  }
  return unknown;
}

}  // namespace

Result<CounterConfig> CounterConfig::create(const Cupti& cupti, const std::string& chip,
                                            std::vector<std::string> names,
                                            const std::vector<uint8_t>& available,
                                            CUpti_ProfilerType profiler) {
  auto host = open_host(cupti, chip, available, profiler);
  if (!host) return host.error();
  CounterConfig config(cupti, *host, std::move(names));
  if (const CUptiResult why = add(cupti, *host, config.name_pointers()); why != CUPTI_SUCCESS) {
    const std::string unknown = unknown_names(cupti, chip, config.name_pointers(), available, profiler);
    if (!unknown.empty()) return Error{fmt::format("{} does not count {}", chip, unknown)};
    return cupti.refused("ProfilerHostConfigAddMetrics", why);
  }

  FATHOM_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params, size);
  size.pHostObject = *host;
  FATHOM_CUPTI(cupti, ProfilerHostGetConfigImageSize, &size);
  config.image_.resize(size.configImageSize);

  FATHOM_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params, image);
  image.pHostObject     = *host;
  image.configImageSize = config.image_.size();
  image.pConfigImage    = config.image_.data();
  FATHOM_CUPTI(cupti, ProfilerHostGetConfigImage, &image);

  FATHOM_CUPTI_PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params, passes);
  passes.configImageSize = config.image_.size();
  passes.pConfigImage    = config.image_.data();
  FATHOM_CUPTI(cupti, ProfilerHostGetNumOfPasses, &passes);
  config.passes_ = static_cast<int>(passes.numOfPasses);
  return config;
}

CounterConfig::CounterConfig(CounterConfig&& other) noexcept
    : cupti_(other.cupti_),
      host_(std::exchange(other.host_, nullptr)),
      names_(std::move(other.names_)),
      image_(std::move(other.image_)),
      passes_(other.passes_) {}

CounterConfig::~CounterConfig() {
  if (host_) close_host(*cupti_, host_);
}

std::vector<const char*> CounterConfig::name_pointers() const {
  std::vector<const char*> pointers;
  for (const std::string& name : names_) pointers.push_back(name.c_str());
  return pointers;
}

Result<std::vector<double>> CounterConfig::values(const std::vector<uint8_t>& counter_data,
                                                  size_t range) const {
  std::vector<const char*> names = name_pointers();
  std::vector<double> values(names.size());
  FATHOM_CUPTI_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params, params);
  params.pHostObject          = host_;
  params.pCounterDataImage    = counter_data.data();
  params.counterDataImageSize = counter_data.size();
  params.rangeIndex           = range;
  params.ppMetricNames        = names.data();
  params.numMetrics           = names.size();
  params.pMetricValues        = values.data();
  FATHOM_CUPTI(*cupti_, ProfilerHostEvaluateToGpuValues, &params);
  return values;
}

}  // namespace fathom::machine
