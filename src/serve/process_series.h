// The series that Prometheus's client libraries export of every process: process_cpu_seconds_total, memory,
// open files (https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics).
#pragma once

#include "serve/exposition.h"

namespace fathom::serve {

// `started_s`: since 1970.
void add_process_series(double started_s, Exposition& to);

}  // namespace fathom::serve
