// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz
// idea    CUTLASS's collectives, in the configuration that is usual for large products on Hopper: tiles of
//         128 x 256 x 64, clusters of two that share blocks of b, cooperative consumers, a persistent grid.
//         The op gemm_bf16 has the same shape
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>

#include "cuda/multiprocessors.h"
#include "experiments/labs/matmul/cutlass.h"

namespace fathom::lab::matmul {
namespace {

namespace collective = ::cutlass::gemm::collective;
namespace epilogue   = ::cutlass::epilogue;

using Element    = ::cutlass::bfloat16_t;
using RowMajor   = ::cutlass::layout::RowMajor;
using Transposed = ::cutlass::layout::ColumnMajor;
using Arch       = ::cutlass::arch::Sm90;
using TensorOp   = ::cutlass::arch::OpClassTensorOp;
using TileShape  = cute::Shape<cute::_128, cute::_256, cute::_64>;
using Cluster    = cute::Shape<cute::_2, cute::_1, cute::_1>;

constexpr int kAlignment = 8;  // elements: 16 bytes

// Nothing is added to the product: no operand C (void).
using Epilogue = epilogue::collective::CollectiveBuilder<
    Arch, TensorOp, TileShape, Cluster, epilogue::collective::EpilogueTileAuto, float, float, void, RowMajor,
    kAlignment, Element, RowMajor, kAlignment, epilogue::TmaWarpSpecializedCooperative>::CollectiveOp;
// As many stages as the epilogue's shared memory leaves room for.
using Stages = collective::StageCountAutoCarveout<static_cast<int>(sizeof(Epilogue::SharedStorage))>;
using Mainloop =
    collective::CollectiveBuilder<Arch, TensorOp, Element, RowMajor, kAlignment, Element, Transposed,
                                  kAlignment, float, TileShape, Cluster, Stages,
                                  ::cutlass::gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp;
using Kernel  = ::cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue,
                                                      ::cutlass::gemm::PersistentScheduler>;
using Product = ::cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

void expect_success(::cutlass::Status status) {
  if (status != ::cutlass::Status::kSuccess)
    throw SystemError(std::string("CUTLASS: ") + ::cutlass::cutlassGetStatusString(status));
}

}  // namespace

void cutlass_gemm(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
  const auto* const a = reinterpret_cast<const Element*>(p.a.data());
  const auto* const b = reinterpret_cast<const Element*>(p.b.data());
  auto* const out     = reinterpret_cast<Element*>(p.out.data());
  Product::Arguments arguments{
      ::cutlass::gemm::GemmUniversalMode::kGemm,
      {m, n, k, 1},
      {a, ::cutlass::make_cute_packed_stride(Kernel::StrideA{}, {m, k, 1}), b,
       ::cutlass::make_cute_packed_stride(Kernel::StrideB{}, {n, k, 1})},
      {{1.0f, 0.0f}, nullptr, {}, out, ::cutlass::make_cute_packed_stride(Kernel::StrideD{}, {m, n, 1})}};
  arguments.hw_info.sm_count = multiprocessors();
  // Columns of tiles that are near one another in time, for L2. CUTLASS pads the grid to whole groups of
  // them, which at 640 x 7424 were three times as many tiles as the product has.
  const bool fits                      = m % 2048 == 0 && n % 2048 == 0;
  arguments.scheduler.max_swizzle_size = fits ? 8 : 1;
  FATHOM_EXPECT(static_cast<int64_t>(Product::get_workspace_size(arguments)) <= p.scratch.bytes(),
                "CUTLASS wants more workspace than there is");
  Product product;
  expect_success(product.initialize(arguments, p.scratch.data(), stream));
  expect_success(product.run(stream));
}

}  // namespace fathom::lab::matmul
