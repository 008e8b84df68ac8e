// What an experiment's panel shows of the metrics of a point: a table, and bars for those that are numbered.
#pragma once

#include <string>

#include "lab/record.h"

namespace fathom::report {

// A row for each metric and a column for each variant: counters, latencies of sessions, memory. Metrics that
// are numbered from 00 on ("tokens_of_expert_07") are a chart instead, with a lane for each variant and the
// variance of its numbers over their mean. `id` is unique on the page, `name` says which point it is. Empty
// without metrics.
std::string metrics_html(const lab::PointRecord& point, const std::string& id, const std::string& name);

}  // namespace fathom::report
