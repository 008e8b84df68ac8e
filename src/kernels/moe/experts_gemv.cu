// Products of the experts that have a row with at most 8 rows each: weights are the A operand of mma.sync,
// rows are its 8 columns.
//
// Two things cost time: the latency from the experts' ids, which the previous kernel has just written, to the
// first weights, and whatever keeps weight loads from being in flight all the time. So there are only as many
// CTAs as the GPU has room for, each with an equal share of the strips of all active experts (persistent). A
// CTA derives its share by itself, from the ids that a warp's lanes hold. Each worker warp has its own part
// of the columns. It keeps the rows' columns in its own part of shared memory, and has the weights of its
// next strip in flight to registers while it computes: no barrier stands between memory and products. One
// more warp, the reduction warp, adds the workers' sums in a fixed order and stores. The second layer's
// weight loads do not wait for the end of the first layer.
//
// bytes   17/32 a weight; the rows, once for each CTA, from L2
// flops   2 for each weight and row
// limit   memory bandwidth
// instructions  for 32 weights of a lane: 52 to dequantise, 4 HMMA, and 9 (strips of two groups of 16 rows)
// to
//         14 (of one) to load, count and hand over. That is half to two thirds of the time that the weights
//         take from memory, if an H200's schedulers issue all the time
// overhead  a token's first layer takes 13.5 us, of which memory needs 7.9. 1 us passes until the ids are
// there
//         and weights are requested, 2.4 more until the median CTA has its first strip, because all request
//         theirs at once. On half of the multiprocessors one CTA, never two, finishes its first two strips
//         4 us later than most, and the others have ended when it does its last. A pipeline in shared memory,
//         and more CTAs than fit at once, gained nothing; prefetches to L2 cost time.
#include "kernels/moe/experts_gemv.cuh"

#include <algorithm>

namespace fathom::kernels {
namespace experts_gemv {
namespace {

template <class Layer, bool kFullDepth, int kGroups, int kCtasPerSm>
__global__ void __launch_bounds__(kThreads, kCtasPerSm)
    experts_gemv_mxfp4_kernel(InputRows from, const int32_t* experts, int expert_rows, PackedExperts w,
                              Divisor ctas, Divisor strips_of_expert, Layer layer) {
  using Memory = Shared<kGroups, kMaxRows>;
  extern __shared__ __align__(128) uint4 memory[];
  auto& shared = *reinterpret_cast<Memory*>(memory);
  if (threadIdx.x == 0) shared.init_barriers();
  __syncthreads();  // the barriers are initialised

  if (Layer::kIdsFromPreviousKernel) ptx::griddepcontrol_wait();
  const ActiveExperts active(experts, expert_rows);
  const Share share(active, static_cast<int>(blockIdx.x), ctas, strips_of_expert);

  if (threadIdx.x < 32 * kWorkers) {
    Worker<kFullDepth, Memory> worker(shared, w, share, strips_of_expert);
    worker.load_all();
    if (!Layer::kIdsFromPreviousKernel) ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
    worker.run([&] { return share; }, from, layer, [] {});
    return;
  }
  Reducer<Memory> reducer(shared, w, share, strips_of_expert, 0);
  if (!Layer::kIdsFromPreviousKernel) ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  reducer.run(share, layer);
}

template <bool kFullDepth, int kGroups, int kCtasPerSm, class Layer>
void launch_shape(const InputRows& rows, const int32_t* experts, int expert_rows, const PackedExperts& w,
                  const Layer& layer, StreamRef stream) {
  constexpr auto kKernel     = experts_gemv_mxfp4_kernel<Layer, kFullDepth, kGroups, kCtasPerSm>;
  constexpr int kSharedBytes = sizeof(Shared<kGroups, kMaxRows>);
  allow_shared_memory_once<kKernel>(kSharedBytes);
  const int ctas       = kCtasPerSm * multiprocessors();
  const int64_t strips = w.rows / (16 * kGroups);
  FATHOM_EXPECT(ctas >= kMaxExpertRows,
                "experts_gemv: the GPU has fewer multiprocessors than experts may be active");
  launch_with_pdl(kKernel, ctas, kThreads, kSharedBytes, stream, rows, experts, expert_rows, w, Divisor(ctas),
                  Divisor(strips), layer);
}

template <class Layer>
void launch(View<const bf16, 2> x, View<const int32_t, 2> experts, const PackedExperts& w, const Layer& layer,
            StreamRef stream) {
  expect_gemv_shapes(x, experts, w);
  if (experts.size() == 0 || w.rows == 0) return;
  const InputRows rows{x.data(), x.stride(0), static_cast<int>(x.extent(1))};
  const auto expert_rows = static_cast<int>(experts.size());
  if (w.depth < kMaxGemvColumns)
    return launch_shape<false, 2, 2>(rows, experts.data(), expert_rows, w, layer, stream);
  // One token's experts are little work, which smaller strips divide more evenly.
  if (experts.extent(0) == 1)
    return launch_shape<true, 1, 3>(rows, experts.data(), expert_rows, w, layer, stream);
  launch_shape<true, 2, 2>(rows, experts.data(), expert_rows, w, layer, stream);
}

}  // namespace
}  // namespace experts_gemv

void experts_up_gemv(View<const bf16, 2> x, View<const int32_t, 2> experts, const PackedExperts& w1,
                     float limit, float alpha, View<bf16, 2> a, StreamRef stream) {
  FATHOM_EXPECT(x.extent(0) == experts.extent(0) && a.extent(0) == experts.size() &&
                    a.extent(1) == w1.rows / 2 && a.contiguous(),
                "experts_up_gemv: x is [T, H], a [T top_k, units], contiguous");
  experts_gemv::launch(
      x, experts, w1,
      experts_gemv::UpProjection{.top_k = experts_gemv::Divisor(std::max<int64_t>(1, experts.extent(1))),
                                 .limit = limit,
                                 .alpha = alpha,
                                 .a     = a.data()},
      stream);
}

void experts_down_gemv(View<const bf16, 2> a, View<const int32_t, 2> experts, View<const float, 2> weights,
                       const PackedExperts& w2, View<float, 2> expert_outputs, StreamRef stream) {
  FATHOM_EXPECT(a.extent(0) == experts.size() && weights.size() == experts.size() && weights.contiguous() &&
                    expert_outputs.extent(0) == experts.size() && expert_outputs.contiguous() &&
                    expert_outputs.extent(1) <= w2.rows,
                "experts_down_gemv: a and expert_rows have T top_k rows, weights are [T, top_k], contiguous");
  experts_gemv::launch(a, experts, w2,
                       experts_gemv::DownProjection{.weights        = weights.data(),
                                                    .expert_outputs = expert_outputs.data(),
                                                    .hidden         = expert_outputs.extent(1)},
                       stream);
}

}  // namespace fathom::kernels
