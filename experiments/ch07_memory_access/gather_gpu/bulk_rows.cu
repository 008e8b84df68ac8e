// out(r, c) = in(token(r), c)                       T x D bf16 to 4 T x D
//
// bytes   10 T D: 2 T D read + 8 T D written, and the map. By token each row is read once
// flops   0
// limit   DRAM bandwidth. H200: T = 32768, D = 2880 moves 0.94 GB, 0.24 ms at 3.98 TB/s
// idea    TMA moves whole rows: one thread issues the load of a row to shared memory and then four stores of
//         it. No registers in between, and all of shared memory is in flight
#include "cuda/check.h"
#include "cuda/ptx.cuh"
#include "dispatch.h"
#include "warp_per_token.cuh"

namespace fathom::lab::gather_gpu {
namespace {

constexpr int kTokens   = 4;           // of a block, a thread each
constexpr int kMostRows = 225 * 1024;  // bytes of shared memory for them

extern __shared__ __align__(128) uint8_t rows[];  // kTokens of them

__global__ void __launch_bounds__(kTokens)
    spread_rows_kernel(const uint8_t* __restrict__ in, const int4* __restrict__ place,
                       uint8_t* __restrict__ out, int tokens, int row_bytes) {
  __shared__ uint64_t arrived[kTokens];
  const int token = blockIdx.x * kTokens + threadIdx.x;
  if (token >= tokens) return;
  uint64_t* barrier = &arrived[threadIdx.x];  // each thread has its own barrier and its own row
  uint8_t* row      = rows + threadIdx.x * row_bytes;

  ptx::mbarrier_init(barrier, 1);
  ptx::fence_proxy_async();  // makes the initialised barrier visible to TMA
  ptx::mbarrier_arrive_expect_tx(barrier, row_bytes);
  ptx::cp_async_bulk_load(row, in + int64_t{token} * row_bytes, row_bytes, barrier);
  const int4 places = place[token];  // loads while the row arrives
  ptx::mbarrier_wait(barrier, 0);    // the row has arrived, for the copies below too

  static_assert(kTopK == 4);
  ptx::cp_async_bulk_store(out + int64_t{places.x} * row_bytes, row, row_bytes);
  ptx::cp_async_bulk_store(out + int64_t{places.y} * row_bytes, row, row_bytes);
  ptx::cp_async_bulk_store(out + int64_t{places.z} * row_bytes, row, row_bytes);
  ptx::cp_async_bulk_store(out + int64_t{places.w} * row_bytes, row, row_bytes);
  ptx::cp_async_bulk_commit_group();
  ptx::cp_async_bulk_wait_group_read<0>();  // shared memory belongs to this block until it has been read
}

}  // namespace

void bulk_rows(const Dispatch& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  const int tokens = static_cast<int>(p.in.extent(0)), row_bytes = static_cast<int>(p.in.extent(1)) * 2;
  // TMA bulk copies take multiples of 16 bytes.
  if (row_bytes % 16 != 0) return spread<uint16_t>(p, stream);
  const int shared_bytes = kTokens * row_bytes;
  FATHOM_EXPECT(shared_bytes <= kMostRows, "the rows of a block must fit its shared memory");
  FATHOM_CUDA(
      cudaFuncSetAttribute(spread_rows_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostRows));
  spread_rows_kernel<<<blocks_for(tokens, kTokens), kTokens, shared_bytes, stream>>>(
      reinterpret_cast<const uint8_t*>(p.in.data()), reinterpret_cast<const int4*>(p.place.data()),
      reinterpret_cast<uint8_t*>(p.out.data()), tokens, row_bytes);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::gather_gpu
