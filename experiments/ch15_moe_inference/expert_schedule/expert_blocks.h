// The first product of a layer of experts, rows sorted by expert: out(i) = x(i) W[e] for rows i of expert e,
// which are [first(e), first(e + 1)), fp32. A block has a slice of 32 columns of an expert's W in shared
// memory and takes all of the expert's rows past it.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab {
struct CallMetrics;
}

namespace fathom::lab::expert_schedule {

inline constexpr int kMostExperts = 256, kSlice = 32, kMostDepth = 1024;

struct ExpertBlocks {
  View<const int32_t, 1> first;  // experts + 1
  View<const float, 2> x;        // rows x depth, a multiple of 4
  View<const float, 3> w;        // experts x depth x columns, a multiple of kSlice
  View<float, 2> out;            // rows x columns
  // Of each block of work: when it began and ended, and on which multiprocessor.
  View<double, 2> times;      // experts * columns / kSlice x 3
  View<uint32_t, 1> tickets;  // workspace: the queue's counter

  ExpertBlocks(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i, int64_t j) const;
  void metrics(CallMetrics& metrics) const;
};

FATHOM_CUDA_LAUNCHER void in_order(const ExpertBlocks& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void longest_first(const ExpertBlocks& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void ticket_queue(const ExpertBlocks& p, StreamRef stream);

}  // namespace fathom::lab::expert_schedule
