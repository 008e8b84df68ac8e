// ids(r) = a draw from softmax(logits(r, .) / temperature), cut to its top-p
//
// bytes   4 R V read at least; here for each logit 12 to make keys, 16 for each pass of the sort, of which
//         there are 4 or 5, and 60 for weights and their running sums, twice
// flops   some 40 R V
// limit   memory bandwidth. H200: 64 rows of V = 201088 are 51 MB, 11 us at 4.55 TB/s
// idea    none yet: the definition. Sort, running sums of the weights, the last token within top-p, running
//         sums of the weights that remain, the token at which they pass u times their total. Sort and sums
//         are CUB's, of all rows at once
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include "cuda/check.h"
#include "cuda/philox.cuh"
#include "sampling.h"

namespace fathom::lab::sampling {
namespace {

using kernels::SamplingRow;

constexpr int kBlock = 256;

// A token as one key: its row, its logit, its id. Within a row likelier tokens have smaller keys, and among
// equals lower ids. Keys are made in the order of ids, and the sort is stable, so it need not sort by id.
constexpr int kIdBits = 18, kLogitBits = 32;
static_assert(kernels::kMaxVocabulary == int64_t{1} << kIdBits);

__device__ uint64_t key_of(int row, float logit, int id) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);  // -0 as 0
  const uint32_t down = bits >> 31 ? bits : ~(bits | 0x80000000u);
  return uint64_t{static_cast<uint32_t>(row)} << (kLogitBits + kIdBits) | uint64_t{down} << kIdBits |
         static_cast<uint32_t>(id);
}
__device__ float logit_of(uint64_t key) {
  const auto down = static_cast<uint32_t>(key >> kIdBits);
  return __uint_as_float(down >> 31 ? down : ~down & 0x7fffffffu);
}

__global__ void keys_kernel(const float* logits, uint64_t* keys, int vocabulary, int all) {
  const int i = blockIdx.x * kBlock + threadIdx.x, row = i / vocabulary;
  if (i < all) keys[i] = key_of(row, logits[i], i - row * vocabulary);
}

// By rank, relative to the row's likeliest token, whose weight is 1.
__global__ void weights_kernel(const uint64_t* sorted, const SamplingRow* rules, double* weights,
                               int vocabulary, int all) {
  const int i = blockIdx.x * kBlock + threadIdx.x, row = i / vocabulary;
  if (i >= all) return;
  const float max = logit_of(sorted[row * vocabulary]);
  weights[i]      = expf((logit_of(sorted[i]) - max) / rules[row].temperature);
}

// By id, and 0 for tokens outside top-p.
__global__ void kept_weights_kernel(const float* logits, const uint64_t* sorted, const uint64_t* last,
                                    const SamplingRow* rules, double* weights, int vocabulary, int all) {
  const int i = blockIdx.x * kBlock + threadIdx.x, row = i / vocabulary;
  if (i >= all) return;
  const float logit = logits[i], max = logit_of(sorted[row * vocabulary]);
  const bool kept = key_of(row, logit, i - row * vocabulary) <= last[row];
  weights[i]      = kept ? expf((logit - max) / rules[row].temperature) : 0;
}

// Running sums of a row: the total of the rows before it is subtracted.
struct RowOfSums {
  const double* sums;
  double before;
  int last;

  __device__ RowOfSums(const double* all, int row, int vocabulary)
      : sums(all + row * vocabulary), before(row == 0 ? 0 : sums[-1]), last(vocabulary - 1) {}

  __device__ double whole() const { return sums[last] - before; }

  // The first sum for which `enough` holds, or the last.
  template <class F>
  __device__ int first(F enough) const {
    int low = 0, high = last;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (enough(sums[middle] - before))
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
};

__global__ void last_kernel(const double* all_sums, const uint64_t* sorted, const SamplingRow* rules,
                            uint64_t* last, int vocabulary, int rows) {
  const int row = blockIdx.x * kBlock + threadIdx.x;
  if (row >= rows) return;
  const RowOfSums sums(all_sums, row, vocabulary);
  const double wanted = rules[row].top_p * sums.whole();
  last[row]           = sorted[row * vocabulary + sums.first([&](double sum) { return sum >= wanted; })];
}

__global__ void draw_kernel(const double* all_sums, const SamplingRow* rules, int32_t* ids, int vocabulary,
                            int rows) {
  const int row = blockIdx.x * kBlock + threadIdx.x;
  if (row >= rows) return;
  const SamplingRow rule = rules[row];
  const RowOfSums sums(all_sums, row, vocabulary);
  // In (0, 1): engine/sampler.cpp.
  const uint4 words   = philox(static_cast<uint64_t>(rule.position), 0, rule.seed);
  const double u      = (static_cast<double>((uint64_t{words.y} << 32 | words.x) >> 11) + 0.5) * 0x1p-53;
  const double target = u * sums.whole();
  ids[rule.place]     = sums.first([&](double sum) { return sum > target; });
}

}  // namespace

void sorted(const Choice& p, StreamRef stream) {
  const auto vocabulary = static_cast<int>(p.vocabulary), all = static_cast<int>(p.logits.size());
  const auto rows = static_cast<int>(p.rows);
  if (all == 0) return;
  const unsigned blocks = blocks_for(all, kBlock), row_blocks = blocks_for(rows, kBlock);
  const auto add_up = [&] {
    size_t bytes = static_cast<size_t>(p.scratch.bytes());  // CUB refuses if that is too little
    FATHOM_CUDA(cub::DeviceScan::InclusiveSum(p.scratch.data(), bytes, p.sums.data(), p.sums.data(),
                                              p.sums.size(), stream));
  };

  cub::DoubleBuffer<uint64_t> keys(&p.keys(0, 0), &p.keys(1, 0));
  keys_kernel<<<blocks, kBlock, 0, stream>>>(p.logits.data(), keys.Current(), vocabulary, all);
  FATHOM_LAUNCHED();
  int end = kIdBits + kLogitBits;
  while (1 << (end - kIdBits - kLogitBits) < rows) ++end;
  size_t bytes = static_cast<size_t>(p.scratch.bytes());
  FATHOM_CUDA(cub::DeviceRadixSort::SortKeys(p.scratch.data(), bytes, keys, all, kIdBits, end, stream));

  weights_kernel<<<blocks, kBlock, 0, stream>>>(keys.Current(), p.rules.data(), p.sums.data(), vocabulary,
                                                all);
  FATHOM_LAUNCHED();
  add_up();
  last_kernel<<<row_blocks, kBlock, 0, stream>>>(p.sums.data(), keys.Current(), p.rules.data(), p.last.data(),
                                                 vocabulary, rows);
  FATHOM_LAUNCHED();
  kept_weights_kernel<<<blocks, kBlock, 0, stream>>>(p.logits.data(), keys.Current(), p.last.data(),
                                                     p.rules.data(), p.sums.data(), vocabulary, all);
  FATHOM_LAUNCHED();
  add_up();
  draw_kernel<<<row_blocks, kBlock, 0, stream>>>(p.sums.data(), p.rules.data(), p.ids.data(), vocabulary,
                                                 rows);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::sampling
