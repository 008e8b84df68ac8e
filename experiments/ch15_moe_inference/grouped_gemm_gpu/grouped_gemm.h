// The problem: the first product of a layer of 32 experts with weights in bf16, for rows that are sorted by
// expert: out(i, n) = sum_k x(i, k) w(e, n, k), where expert e has the rows offsets(e) to offsets(e + 1).
// bf16 in and out, sums in fp32: what cuBLAS's grouped product offers.
#pragma once

#include <array>
#include <functional>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Checker;
class Point;
struct Cost;
}  // namespace fathom::lab

namespace fathom::lab::grouped_gemm_gpu {

inline constexpr int64_t kExperts = 32, kTopK = 4;

struct GroupedGemm {
  View<const bf16, 2> x;           // rows x width
  View<const int32_t, 1> offsets;  // kExperts + 1
  View<const bf16, 3> w;           // kExperts x 2 width x width
  View<bf16, 2> out;               // rows x 2 width

  GroupedGemm(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

// The experts' first rows, on the host: cuBLAS takes numbers of rows there. Waits for the GPU.
std::array<int32_t, kExperts + 1> offsets_on_host(const GroupedGemm& p);

// Each opens cuBLAS and makes a handle; the returned call is timed.
FATHOM_CUDA_LAUNCHER std::function<void(const GroupedGemm&, StreamRef)> one_gemm_each(const GroupedGemm&,
                                                                                      StreamRef);
FATHOM_CUDA_LAUNCHER std::function<void(const GroupedGemm&, StreamRef)> cublas_grouped(const GroupedGemm&,
                                                                                       StreamRef);

}  // namespace fathom::lab::grouped_gemm_gpu
