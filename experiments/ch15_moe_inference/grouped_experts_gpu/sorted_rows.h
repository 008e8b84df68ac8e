// The first step of every variant: rows sorted by expert, and gathered.
#pragma once

#include "grouped_experts.h"
#include "kernels/moe/permute.h"

namespace fathom::lab::grouped_experts_gpu {

inline kernels::ExpertRows sort_and_gather(const GroupedExperts& p, StreamRef stream) {
  const kernels::ExpertRows rows{.offsets = p.first, .sorted_ids = p.slot};
  kernels::sort_by_expert(p.experts, p.first, p.slot, stream);
  kernels::gather_rows(p.x, rows, kTopK, p.sorted, stream);
  return rows;
}

}  // namespace fathom::lab::grouped_experts_gpu
