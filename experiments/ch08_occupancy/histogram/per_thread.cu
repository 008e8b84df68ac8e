// out(v) = number of i with in(i) = v                   n bytes, 256 bins of uint32
//
// bytes   n, read once
// flops   none; n increments
// limit   DRAM bandwidth, read only. H200: n = 268435456 takes 0.059 ms at 4.55 TB/s
// idea    a histogram for each thread, 256 counters of one byte: nothing is shared, so nothing is atomic; a
//         counter that overflows carries into the block's counter. A thread's 64 words lie in one bank, 32
//         lanes in 32 banks, so that no two lanes ever conflict, whatever the bytes are (after V.
//         Podlozhnyuk, Histogram Calculation in CUDA, 2007). 24 warps fill the shared memory; to make up for
//         the low occupancy, two chunks are fetched while two are counted.
#include "experiments/ch08_occupancy/resident_blocks.cuh"
#include "histogram.h"

namespace fathom::lab::histogram {
namespace {

constexpr int kThreads      = 768;
constexpr int kWarps        = kThreads / 32;
constexpr int kRows         = kBins / 4;  // words of a thread, four counters each: value v in row v / 4
constexpr int kWarpBytes    = kRows * 32 * 4;
constexpr int kSharedMemory = kWarps * kWarpBytes;
// In the end every thread adds up the same row of several warps.
constexpr int kWarpsAdded = kWarps * kRows / kThreads;
static_assert(kThreads % kRows == 0 && kWarps % kWarpsAdded == 0 && kWarpsAdded * 32 * 255 < 65536);

// Counts four bytes. `mine` is the offset of this thread's word in row 0.
__device__ void count_word(uint8_t* counters, uint32_t mine, uint32_t word, uint32_t* carries) {
  uint32_t counted[4];
#pragma unroll
  for (int b = 0; b < 4; ++b) {
    const uint32_t value = word >> 8 * b & 0xff;
    // Rows are 128 bytes; `mine` has zeros where a row's number and a counter's place are.
    uint8_t& counter = counters[(value << 5 & 0x1f80) | (value & 3) | mine];
    counted[b]       = counter + 1u;
    counter          = static_cast<uint8_t>(counted[b]);
  }
  if (((counted[0] | counted[1] | counted[2] | counted[3]) & 256) == 0) return;
#pragma unroll
  for (int b = 0; b < 4; ++b)
    if (counted[b] == 256) atomicAdd(&carries[word >> 8 * b & 0xff], 1);
}

__device__ void count_chunk(uint8_t* counters, uint32_t mine, uint4 chunk, uint32_t* carries) {
  count_word(counters, mine, chunk.x, carries);
  count_word(counters, mine, chunk.y, carries);
  count_word(counters, mine, chunk.z, carries);
  count_word(counters, mine, chunk.w, carries);
}

__global__ void __launch_bounds__(kThreads, 1) histogram_kernel(const uint8_t* in, int n, uint32_t* out) {
  extern __shared__ uint4 shared[];
  __shared__ uint32_t carries[kBins];
  const int t = threadIdx.x;
  for (int i = t; i < kSharedMemory / 16; i += kThreads) shared[i] = uint4{};
  if (t < kBins) carries[t] = 0;
  __syncthreads();  // all counters are cleared before any thread counts or carries

  uint8_t* counters   = reinterpret_cast<uint8_t*>(shared);
  const uint32_t mine = t / 32 * kWarpBytes + t % 32 * 4;
  const uint4* chunks = reinterpret_cast<const uint4*>(in);
  const int whole = n / 16, threads = gridDim.x * kThreads;
  const auto fetch = [&](int at) { return at < whole ? chunks[at] : uint4{}; };
  int i            = blockIdx.x * kThreads + t;
  uint4 first = fetch(i), second = fetch(i + threads);
  for (; i < whole; i += 2 * threads) {
    const uint4 next_first = fetch(i + 2 * threads), next_second = fetch(i + 3 * threads);
    count_chunk(counters, mine, first, carries);
    if (i + threads < whole) count_chunk(counters, mine, second, carries);
    first  = next_first;
    second = next_second;
  }
  if (blockIdx.x == 0 && whole * 16 + t < n) atomicAdd(&out[in[whole * 16 + t]], 1);

  __syncthreads();  // all elements are counted
  if (t < kBins) carries[t] *= 256;
  // Lanes read 32 neighbouring rows, each another column of its row: 32 banks. The counters of a word are
  // added in pairs of 16 bits.
  const uint32_t* words = reinterpret_cast<const uint32_t*>(shared);
  const int row         = t % kRows;
  uint32_t even = 0, odd = 0;
  for (int warp = t / kRows; warp < kWarps; warp += kThreads / kRows)
    for (int c = 0; c < 32; ++c) {
      const uint32_t word = words[(warp * kRows + row) * 32 + (c + t) % 32];
      even += word & 0x00ff00ff;
      odd += word >> 8 & 0x00ff00ff;
    }
  __syncthreads();  // carries count as 256 everywhere
  atomicAdd(&carries[row * 4 + 0], even & 0xffff);
  atomicAdd(&carries[row * 4 + 1], odd & 0xffff);
  atomicAdd(&carries[row * 4 + 2], even >> 16);
  atomicAdd(&carries[row * 4 + 3], odd >> 16);
  __syncthreads();  // the block's bins are complete
  if (t < kBins && carries[t] > 0) atomicAdd(&out[t], carries[t]);
}

}  // namespace

void per_thread(const Histogram& p, StreamRef stream) {
  FATHOM_CUDA(cudaMemsetAsync(p.out.data(), 0, static_cast<size_t>(p.out.bytes()), stream));
  const int64_t n = p.in.size();
  if (n == 0) return;
  FATHOM_EXPECT(n <= 1 << 30, "32-bit indices run beyond the number of bytes");
  const int blocks = resident_blocks<histogram_kernel>(kThreads, kSharedMemory);
  histogram_kernel<<<blocks, kThreads, kSharedMemory, stream>>>(p.in.data(), static_cast<int>(n),
                                                                p.out.data());
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::histogram
