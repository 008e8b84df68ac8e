// n walks of uneven length, one item each for a warp: lane l starts at start(i) + l and takes length(i) steps
// of a xorshift generator; out(i) is the sum of where the 32 lanes end, modulo 2^32.
#pragma once

#include <cstdint>

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::work_queue_gpu {

struct Walks {
  View<const uint32_t, 1> start, length;
  View<uint32_t, 1> out;
  View<uint32_t, 1> next;  // workspace: the queue's counter

  Walks(const Point& at, Arena& arena);
  Cost cost() const;
  uint32_t expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void grid_stride(const Walks& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void one_warp_each(const Walks& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void atomic_queue(const Walks& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void tickets_of_8(const Walks& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void tickets_of_32(const Walks& p, StreamRef stream);

}  // namespace fathom::lab::work_queue_gpu
