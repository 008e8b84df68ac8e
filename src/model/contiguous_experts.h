// Experts in BF16 lie transposed in their file (model/weights.h), and the CPU's ops need contiguous rows.
#pragma once

#include <cstdint>

#include "core/buffer.h"
#include "core/dtype.h"
#include "core/thread_pool.h"
#include "core/view.h"
#include "model/weights.h"

namespace fathom::model {

// A copy of a view with contiguous columns, [E, out, in] with contiguous rows.
Buffer<bf16> contiguous_experts(View<const bf16, 3> from, ThreadPool& threads);

// The same weights with such copies of experts that need one, made once for all ranks that compute with them.
struct ContiguousExperts {
  Weights weights;
  int64_t copied_bytes = 0;  // 0 for experts in MXFP4, which are read where the file is mapped
};
ContiguousExperts with_contiguous_experts(Weights weights, ThreadPool& threads);

}  // namespace fathom::model
