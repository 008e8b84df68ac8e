// The prefill's product, by cuBLASLt.
#pragma once

#include <functional>
#include <memory>

#include "cuda/cublas.h"
#include "cuda/cublaslt_matmul.h"
#include "lab/problem.h"
#include "phases.h"

namespace fathom::lab::prefill_beside_decode {

inline std::function<void(const Phases&, StreamRef)> planned_prefill(const Phases& p) {
  if (!cublas()) throw Unavailable("needs_library", why_no_cublas());
  if (p.prefill.size() == 0) return [](const Phases&, StreamRef) {};
  const auto product = std::make_shared<LtMatmul>(DType::bf16, DType::bf16, false, p.x.extent(0),
                                                  p.w.extent(0), p.x.extent(1));
  FATHOM_EXPECT(static_cast<int64_t>(product->workspace_bytes()) <= p.scratch.bytes(),
                "cuBLASLt wants more than the 32 MiB it was allowed");
  return [product](const Phases& q, StreamRef stream) {
    product->run(q.x.data(), q.w.data(), q.prefill.data(), q.scratch.data(), stream);
  };
}

}  // namespace fathom::lab::prefill_beside_decode
