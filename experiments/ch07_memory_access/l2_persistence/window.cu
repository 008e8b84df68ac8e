// out(i, d) = x(i, d) + table(id(i), d)                       n x 64 fp32
//
// bytes   516 n + the table: 260 n read + 256 n written. Each row of the table that L2 has forgotten costs
//         256 more
// flops   64 n
// limit   DRAM bandwidth. H200: n = 2^21 and 16 MiB move 1.10 GB, 0.28 ms at 3.98 TB/s
// idea    an access-policy window marks lines of the table as persisting, in a set-aside part of L2. The
//         window belongs to one launch and ends with it, but the marked lines would stay; so a second kernel
//         touches them through a window that makes them normal again (131,072 lines of 16 MiB: some
//         microseconds, within the time)
#include <algorithm>

#include "add_rows.cuh"

namespace fathom::lab::l2_persistence {
namespace {

// Only as many lines of the window become persisting as the harness has set aside in L2 (the variant's
// persisting_l2); all of them can become normal.
cudaLaunchAttribute window_over(const Lookup& p, cudaAccessProperty property) {
  int device = 0, widest = 0;
  size_t set_aside = 0;
  FATHOM_CUDA(cudaGetDevice(&device));
  FATHOM_CUDA(cudaDeviceGetAttribute(&widest, cudaDevAttrMaxAccessPolicyWindowSize, device));
  FATHOM_CUDA(cudaDeviceGetLimit(&set_aside, cudaLimitPersistingL2CacheSize));
  const auto bytes  = static_cast<size_t>(std::min<int64_t>(p.table.bytes(), widest));
  const float share = property == cudaAccessPropertyPersisting
                          ? std::min(1.0f, static_cast<float>(set_aside) / static_cast<float>(bytes))
                          : 1.0f;
  cudaLaunchAttribute attribute{};
  attribute.id                     = cudaLaunchAttributeAccessPolicyWindow;
  attribute.val.accessPolicyWindow = {.base_ptr  = const_cast<float*>(p.table.data()),
                                      .num_bytes = bytes,
                                      .hitRatio  = share,
                                      .hitProp   = property,
                                      .missProp  = cudaAccessPropertyNormal};
  return attribute;
}

constexpr int kLine = 128;  // bytes

// Touches every line of the table.
__global__ void __launch_bounds__(kThreads) release_kernel(const char* table, int lines) {
  const int line = blockIdx.x * kThreads + threadIdx.x;
  if (line < lines)
    asm volatile("prefetch.global.L2::evict_normal [%0];" ::"l"(table + int64_t{line} * kLine) : "memory");
}

cudaLaunchConfig_t configuration(unsigned blocks, cudaLaunchAttribute& window, StreamRef stream) {
  cudaLaunchConfig_t config{};
  config.gridDim  = blocks;
  config.blockDim = kThreads;
  config.stream   = stream;
  config.attrs    = &window;
  config.numAttrs = 1;
  return config;
}

}  // namespace

void window(const Lookup& p, StreamRef stream) {
  const int n = static_cast<int>(p.x.extent(0)), lines = static_cast<int>(p.table.bytes() / kLine);
  if (n == 0) return;
  const Pointers of = vectors_of(p);

  auto persisting = window_over(p, cudaAccessPropertyPersisting);
  const auto add  = configuration(blocks_for(n, kBlockRows), persisting, stream);
  FATHOM_CUDA(cudaLaunchKernelEx(&add, add_rows_kernel<Unmarked>, of.x, p.id.data(), of.table, of.out, n));

  auto normal        = window_over(p, cudaAccessPropertyNormal);
  const auto release = configuration(blocks_for(lines, kThreads), normal, stream);
  FATHOM_CUDA(cudaLaunchKernelEx(&release, release_kernel, reinterpret_cast<const char*>(of.table), lines));
}

}  // namespace fathom::lab::l2_persistence
