// What every variant begins with.
#pragma once

#include "grouped_experts.h"
#include "kernels/expert_rows.h"

namespace fathom::lab::grouped_experts_gpu {

inline kernels::ExpertRows bring_together(const GroupedExperts& p, StreamRef stream) {
  const kernels::ExpertRows rows{.first = p.first, .slot = p.slot};
  kernels::sort_by_expert(p.experts, p.first, p.slot, stream);
  kernels::gather_rows(p.x, rows, kTopK, p.sorted, stream);
  return rows;
}

}  // namespace fathom::lab::grouped_experts_gpu
