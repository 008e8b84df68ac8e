// The series of GPUs and of energy in GET /metrics. What the DCGM exporter (github.com/NVIDIA/dcgm-exporter)
// has by default goes by its names, units and labels, so that dashboards for it work; the rest by ours.
#pragma once

#include <vector>

#include "machine/rapl.h"
#include "serve/exposition.h"
#include "serve/gpu_monitor.h"

namespace fathom::serve {

// `gpus` may be null: this server watches none. An absent reading has no series: a sensor that does not
// answer is no 0.
void add_device_series(const GpuMonitor::Scrape* gpus, const std::vector<machine::CpuEnergy>& cpus,
                       Exposition& to);

}  // namespace fathom::serve
