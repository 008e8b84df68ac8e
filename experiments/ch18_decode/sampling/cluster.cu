// ids(r) = a draw from softmax(logits(r, .) / temperature), cut to its top-p
//
// bytes   4 R V read from device memory, once; the looks read shared memory
// flops   some 40 R V
// limit   memory bandwidth. H200: 64 rows of V = 201088 are 51 MB, 11 us at 4.55 TB/s; one row: latency
// idea    a row of 0.8 MB does not fit one SM's shared memory, but that of a cluster of 8 CTAs: a look then
//         takes a fraction of a microsecond, and 8 SMs work on a row. After each look the CTAs read each
//         other's totals from distributed shared memory
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/per_device.h"
#include "pivots.cuh"

namespace fathom::lab::sampling {
namespace {

constexpr int kCtas = 8, kWarps = 16, kThreads = 32 * kWarps;  // of a cluster, of a CTA

struct Shared {
  Total of_warps[2][kWarps][kPivots], of_cta[2][kPivots];  // of two looks, by turns
  float maxima[kWarps];
  float4 max;  // of the CTA, in all four
};

// The same object of another CTA's shared memory.
template <class T>
__device__ T load_from_cta(const T& object, int cta) {
  static_assert(sizeof(T) == 16);
  const uint32_t address = ptx::mapa_shared_cluster(ptx::shared_address(&object), cta);
  const float4 bytes     = ptx::ld_shared_cluster_v4(address);
  return reinterpret_cast<const T&>(bytes);
}
__device__ void cluster_sync() {
  ptx::cluster_barrier_arrive();
  ptx::cluster_barrier_wait();
}

// Adds what lanes with the same lane % kPivots have.
__device__ Total over_groups(Total sum) {
#pragma unroll
  for (int other = kPivots; other < 32; other *= 2) {
    sum.weight += __shfl_xor_sync(~0u, sum.weight, other);
    sum.count += __shfl_xor_sync(~0u, sum.count, other);
  }
  return sum;
}

// Lane j the row's total from pivot j on, added up in the same order by every warp.
__device__ Total over_row(Shared& shared, int turn, const Total& of_warp) {
  auto& of_warps = shared.of_warps[turn % 2];
  if (lane() < kPivots) of_warps[warp()][lane()] = of_warp;
  __syncthreads();  // of_warps is complete
  Total sum;
  for (int w = lane() / kPivots; w < kWarps; w += 32 / kPivots) {
    sum.weight += of_warps[w][lane() % kPivots].weight;
    sum.count += of_warps[w][lane() % kPivots].count;
  }
  sum = over_groups(sum);
  if (warp() == 0 && lane() < kPivots) shared.of_cta[turn % 2][lane()] = sum;
  cluster_sync();  // every CTA's total is in its shared memory
  sum = {};
  for (int b = lane() / kPivots; b < kCtas; b += 32 / kPivots) {
    const Total of_b = load_from_cta(shared.of_cta[turn % 2][lane() % kPivots], b);
    sum.weight += of_b.weight;
    sum.count += of_b.count;
  }
  return over_groups(sum);
}

// Grid: a cluster for each row. A warp's slice has `each` vectors.
__global__ void __launch_bounds__(kThreads, 2)
    cluster_kernel(const float* all_logits, const kernels::SamplingRow* rules, int32_t* ids, int vocabulary,
                   int each) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared                     = *reinterpret_cast<Shared*>(memory);
  const int cta                    = static_cast<int>(blockIdx.x % kCtas);
  const auto r                     = static_cast<int64_t>(blockIdx.x / kCtas);
  const auto row                   = all_logits + r * vocabulary;
  const kernels::SamplingRow& rule = rules[r];
  const int first                  = min(each * (cta * kWarps + warp()), vocabulary / 4);
  const auto from                  = reinterpret_cast<const float4*>(row) + first;
  const auto to                    = reinterpret_cast<float4*>(memory + sizeof(Shared)) + each * warp();
  const Slice slice{to, 4 * first, min(each, vocabulary / 4 - first)};
  for (int i = lane(); i < slice.vectors; i += 32) ptx::cp_async_cg(to + i, from + i);
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  __syncwarp();  // a warp reads what its lanes have copied

  const float of_warp = max_of(slice);
  if (lane() == 0) shared.maxima[warp()] = of_warp;
  __syncthreads();  // maxima are complete
  float max = -INFINITY;
  for (const float m : shared.maxima) max = fmaxf(max, m);
  if (threadIdx.x == 0) shared.max = {max, max, max, max};
  cluster_sync();  // every CTA's maximum is in its shared memory
  for (int b = 0; b < kCtas; ++b) max = fmaxf(max, load_from_cta(shared.max, b).x);
  const Weight weight{max, fminf(1.44269504f / rule.temperature, FLT_MAX)};

  int turn = 0;
  Cut cut;
  if (rule.top_p < 1) {
    Interval threshold{.end = nextafterf(max, INFINITY)};
    double wanted = 0;
    float pivot   = first_pivot(max, rule.temperature);
    do {
      Total from_pivot = over_row(shared, turn++, total_from(slice, pivot, threshold.end, weight));
      from_pivot.weight += threshold.from_end.weight;
      from_pivot.count += threshold.from_end.count;
      if (wanted == 0) wanted = rule.top_p * __shfl_sync(~0u, from_pivot.weight, 0);
      threshold.narrow(pivot, from_pivot, wanted);
      pivot = threshold.pivot();
    } while (!threshold.is_final());
    cut = cut_at(threshold, wanted, weight, row, vocabulary);
  }

  const Total whole = over_row(shared, turn, {weight_of(slice, cut, weight), 0});
  double target     = uniform(rule) * whole.weight;
  const int b       = lane() < kCtas ? lane() : 0;
  const double sum  = lane() < kCtas ? load_from_cta(shared.of_cta[turn % 2][0], b).weight : 0;
  cluster_sync();  // no CTA leaves while others read its shared memory
  if (locate(sum, target) != cta) return;
  const double of_warps = lane() < kWarps ? shared.of_warps[turn % 2][lane()][0].weight : 0;
  if (locate(of_warps, target) != warp()) return;
  const int id = draw_from(slice, cut, weight, target);
  if (lane() == 0) ids[rule.place] = id;
}

}  // namespace

void cluster(const Choice& p, StreamRef stream) {
  if (p.logits.size() == 0) return;
  const auto bytes_for = [](int64_t each) { return static_cast<int>(sizeof(Shared) + kWarps * each * 16); };
  static PerDevice<bool> allowed;
  allowed.get([&] {
    return allow_shared_memory(cluster_kernel, bytes_for(kernels::kMaxVocabulary / 4 / kCtas / kWarps)), true;
  });
  const auto each = static_cast<int>(blocks_for(p.vocabulary / 4, kCtas * kWarps));
  // The cluster is an attribute of the launch: GPUs before sm_90 do not compile one in the kernel.
  cudaLaunchAttribute in_clusters{};
  in_clusters.id               = cudaLaunchAttributeClusterDimension;
  in_clusters.val.clusterDim.x = kCtas;
  in_clusters.val.clusterDim.y = in_clusters.val.clusterDim.z = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim          = dim3(static_cast<unsigned>(p.rows * kCtas));
  launch.blockDim         = dim3(kThreads);
  launch.dynamicSmemBytes = static_cast<size_t>(bytes_for(each));
  launch.stream           = stream;
  launch.attrs            = &in_clusters;
  launch.numAttrs         = 1;
  FATHOM_CUDA(cudaLaunchKernelEx(&launch, cluster_kernel, p.logits.data(), p.rules.data(), p.ids.data(),
                                 static_cast<int>(p.vocabulary), each));
}

}  // namespace fathom::lab::sampling
