// Both layers of the experts in one launch, for at most 8 rows: experts_gemv.cu without the end of one grid
// and the start of the next between them.
//
// bytes   17/32 a weight of both layers; the rows and the activations, once for each CTA, from L2
// flops   2 for each weight and row
// limit   memory bandwidth. One token: 52.9 MB of weights
// idea    The CTAs are resident at once. Each has a share of the first layer's strips and one of the second
//         layer's. The second layer's weights do not depend on activations: as soon as a warp has requested
//         its last strip of the first layer, it requests strips of the second. One token: two strips go to
//         shared memory, which at 2880 columns and 4 experts is all that a CTA has of the second layer. More
//         tokens: one strip goes to registers. Then the CTAs meet at a grid barrier, because every output
//         needs all activations of its expert. Loads are in flight meanwhile. The barrier costs a fence, an
//         addition in L2 and a load from there. CTAs with one strip more of the first layer are at one end of
//         the grid, those with one more of the second at the other
//
// Residency. A CTA that waits at the barrier keeps its place, so that all of them must find one. A
// cooperative launch guarantees that. A dependent launch (cuda/launch.cuh) would not: CTAs may start on
// multiprocessors that still hold the previous kernel's CTAs, divided into L1 and shared memory as that
// kernel prefers. Where that leaves room for fewer CTAs than kCtasPerSm, and the division cannot change while
// a CTA waits there, the grid hangs.
//
// Sums are added in the same order as by the two launches, so that results are the same bits.
#include <algorithm>

#include "cuda/cooperative_launch.cuh"
#include "cuda/grid_barrier.cuh"
#include "kernels/moe/experts_gemv.cuh"

namespace fathom::kernels {
namespace experts_gemv {
namespace {

struct Layers {
  InputRows x, a;
  PackedExperts w1, w2;
  Divisor up_strips, down_strips;  // of an expert
  UpProjection up;
  DownProjection down;
  uint32_t* barrier;
};

// Strips of the second layer that are requested into shared memory. A token's small strips leave room for
// two; the registers in which larger ones are in flight hold half as much.
template <bool kFullDepth, int kGroups>
constexpr int kStagedStrips = (kFullDepth && kGroups == 1) ? 2 : 0;

template <bool kFullDepth, int kGroups, int kRows, int kCtasPerSm>
__global__ void __launch_bounds__(kThreads, kCtasPerSm)
    experts_gemv_fused_mxfp4_kernel(const __grid_constant__ Layers o, const int32_t* experts, int expert_rows,
                                    Divisor ctas) {
  constexpr int kStaged = kStagedStrips<kFullDepth, kGroups>;
  using Memory          = Shared<kGroups, kRows>;
  extern __shared__ __align__(128) uint4 memory[];
  __shared__ __align__(16) unsigned char shares[2 * (kWorkers + 1) * sizeof(Share)];
  __shared__ uint64_t activations;  // all CTAs' activations are there
  auto& shared                  = *reinterpret_cast<Memory*>(memory);
  [[maybe_unused]] auto* staged = reinterpret_cast<StagedStrip*>(&shared + 1);
  static_assert(sizeof(Memory) % 16 == 0);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  if (threadIdx.x == 0) {
    shared.init_barriers();
    ptx::mbarrier_init(&activations, 1);
  }
  __syncthreads();  // the barriers are initialised

  const ActiveExperts active(experts, expert_rows);
  // The shares lie in shared memory, a copy for each warp: a worker has no registers for them, nor for where
  // they are.
  const auto share_of_warp = [&](int layer) -> Share& {
    const int warp_of_cta = ptx::opaque(static_cast<int>(threadIdx.x)) >> 5;
    return reinterpret_cast<Share*>(shares)[2 * warp_of_cta + layer];
  };
  const auto up_share   = [&]() -> Share& { return share_of_warp(0); };
  const auto down_share = [&]() -> Share& { return share_of_warp(1); };
  const auto divide     = [&](Share& to, int cta, const Divisor& strips) {
    const Share share(active, cta, ctas, strips);
    if (lane == 0) to = share;
    __syncwarp();  // all lanes read it
  };
  const auto divide_down = [&] {
    divide(down_share(), static_cast<int>(gridDim.x - 1 - blockIdx.x), o.down_strips);
  };
  divide(up_share(), static_cast<int>(blockIdx.x), o.up_strips);

  if (warp < kWorkers) {
    Worker<kFullDepth, Memory> worker(shared, o.w1, up_share(), o.up_strips);
    worker.load_all();
    ptx::griddepcontrol_launch_dependents();
    divide_down();
    if constexpr (kStaged > 0) {
      const auto stage = [&](int i) { worker.load_staged(staged[i], o.w2, down_share(), o.down_strips, i); };
      worker.run(up_share, o.x, o.up, [&] { stage(0); });
      if (up_share().until[1] == 0) stage(0);
#pragma unroll 1
      for (int i = 1; i < kStaged; ++i) stage(i);
      ptx::mbarrier_wait(&activations, 0);
      worker.template run_staged<kStaged>(staged, o.w2, down_share, o.down_strips, o.a, o.down);
    } else {
      const auto take_down = [&] { worker.take_from(o.w2, down_share(), o.down_strips); };
      worker.run(up_share, o.x, o.up, take_down);
      if (up_share().until[1] == 0) {
        take_down();
        worker.load_all();
      }
      ptx::mbarrier_wait(&activations, 0);
      worker.run(down_share, o.a, o.down, [] {});
    }
    return;
  }

  Reducer<Memory> up(shared, o.w1, up_share(), o.up_strips, 0);
  ptx::griddepcontrol_launch_dependents();
  divide_down();
  up.run(up_share(), o.up);
  // The CTA's activations are those of this warp's lanes.
  __syncwarp();
  GridBarrier barrier(o.barrier);
  if (lane == 0) barrier.arrive();
  Reducer<Memory> down(shared, o.w2, down_share(), o.down_strips, up_share().until[1]);
  if (lane == 0) {
    barrier.wait();
    ptx::mbarrier_arrive(&activations);
  }
  __syncwarp();
  down.run(down_share(), o.down);
}

template <bool kFullDepth, int kGroups, int kRows, int kCtasPerSm>
void launch_shape(const Layers& layers, const int32_t* experts, int expert_rows, StreamRef stream) {
  constexpr auto kKernel = experts_gemv_fused_mxfp4_kernel<kFullDepth, kGroups, kRows, kCtasPerSm>;
  constexpr int kSharedBytes =
      sizeof(Shared<kGroups, kRows>) + kStagedStrips<kFullDepth, kGroups> * sizeof(StagedStrip);
  allow_shared_memory_once<kKernel>(kSharedBytes);
  static PerDevice<int> resident;
  const int of_multiprocessor = resident.get([] {
    int count = 0;
    // As much shared memory as there is, so that kCtasPerSm CTAs find room.
    FATHOM_CUDA(cudaFuncSetAttribute(kKernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                     cudaSharedmemCarveoutMaxShared));
    FATHOM_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, kKernel, kThreads, kSharedBytes));
    return count;
  });
  const int ctas              = kCtasPerSm * multiprocessors();
  FATHOM_EXPECT(of_multiprocessor >= kCtasPerSm && ctas >= kMaxExpertRows,
                "experts_gemv_fused: all CTAs must be resident at once, and at least as many as experts");
  launch_cooperative(kKernel, dim3(ctas), dim3(kThreads), kSharedBytes, stream, layers, experts, expert_rows,
                     Divisor(ctas));
}

}  // namespace
}  // namespace experts_gemv

void experts_gemv_fused(View<const bf16, 2> x, View<const int32_t, 2> experts, View<const float, 2> weights,
                        const PackedExperts& w1, const PackedExperts& w2, float limit, float alpha,
                        View<bf16, 2> a, View<float, 2> expert_outputs, uint32_t* barrier, StreamRef stream) {
  using namespace experts_gemv;
  expect_gemv_shapes(x, experts, w1);
  expect_gemv_shapes(a, experts, w2);
  FATHOM_EXPECT(x.extent(0) == experts.extent(0) && a.extent(0) == experts.size() &&
                    a.extent(1) == w1.rows / 2 && a.contiguous(),
                "experts_gemv_fused: x is [T, H], a [T top_k, units], contiguous");
  FATHOM_EXPECT(weights.size() == experts.size() && weights.contiguous() &&
                    expert_outputs.extent(0) == experts.size() && expert_outputs.contiguous() &&
                    expert_outputs.extent(1) <= w2.rows,
                "experts_gemv_fused: weights are [T, top_k], expert_outputs [T top_k, H], contiguous");
  FATHOM_EXPECT(barrier != nullptr, "experts_gemv_fused: needs a word for its barrier");
  if (experts.size() == 0) return;
  FATHOM_EXPECT(w1.rows > 0 && w2.rows > 0, "experts_gemv_fused: both layers have rows");
  const bool full_depth = w1.depth == kMaxGemvColumns && w2.depth == kMaxGemvColumns;
  const bool one_token  = full_depth && experts.extent(0) == 1;
  const int strip_rows  = one_token ? 16 : 32;
  const Layers layers{.x           = {x.data(), x.stride(0), static_cast<int>(x.extent(1))},
                      .a           = {a.data(), a.stride(0), static_cast<int>(a.extent(1))},
                      .w1          = w1,
                      .w2          = w2,
                      .up_strips   = Divisor(w1.rows / strip_rows),
                      .down_strips = Divisor(w2.rows / strip_rows),
                      .up          = {.top_k = Divisor(std::max<int64_t>(1, experts.extent(1))),
                                      .limit = limit,
                                      .alpha = alpha,
                                      .a     = a.data()},
                      .down        = {.weights        = weights.data(),
                                      .expert_outputs = expert_outputs.data(),
                                      .hidden         = expert_outputs.extent(1)},
                      .barrier     = barrier};
  const auto expert_rows = static_cast<int>(experts.size());
  // The shapes of experts_gemv.cu. A single token has one row for each of its experts.
  if (!full_depth) return launch_shape<false, 2, kMaxRows, 2>(layers, experts.data(), expert_rows, stream);
  if (one_token) return launch_shape<true, 1, 1, 3>(layers, experts.data(), expert_rows, stream);
  launch_shape<true, 2, kMaxRows, 2>(layers, experts.data(), expert_rows, stream);
}

}  // namespace fathom::kernels
