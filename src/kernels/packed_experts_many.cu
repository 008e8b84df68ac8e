// Items are (expert, groups of its matrix, rows of it), expert by expert, and in one expert all its rows for
// one part of its matrix, so that this part is read once from memory. A block per multiprocessor, or two,
// walk over them. Main loop, flops and bytes: packed_many.cuh.
#include "core/expect.h"
#include "kernels/packed_epilogue.cuh"
#include "kernels/packed_experts_many.h"
#include "kernels/packed_many.cuh"

namespace fathom::kernels {
namespace {

using namespace many;

// Which items there are is known only on the device: from the numbers of rows.
template <class S>
class ExpertWork {
 public:
  static constexpr bool kKnown = false;
  struct Shared {
    int items_before[kMaxExperts + 1];
  };

  ExpertWork(const ExpertRows& rows, const PackedExperts& w)
      : first_(rows.first.data()),
        experts_(static_cast<int>(w.experts)),
        groups_(static_cast<int>(w.rows / kTile)),
        depth_(static_cast<int>(w.depth / kTile)) {}

  __device__ void begin(Shared& shared) {
    items_before_ = shared.items_before;
    if (threadIdx.x >= 32) return;
    constexpr int kEach = static_cast<int>(kMaxExperts) / 32;  // experts of a lane
    const int lane = threadIdx.x, across = (groups_ + S::kGroups - 1) / S::kGroups;
    int items[kEach], sum                = 0;
    for (int i = 0; i < kEach; ++i) {
      const int e = lane * kEach + i;
      items[i]    = e < experts_ ? across * columns(e) : 0;
      sum += items[i];
    }
    int before = sum;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, before, step);
      if (lane >= step) before += other;
    }
    before -= sum;
    for (int i = 0; i < kEach; ++i) {
      shared.items_before[lane * kEach + i] = before;
      before += items[i];
    }
    if (lane == 31) shared.items_before[kMaxExperts] = before;
  }

  __device__ int first() const { return blockIdx.x; }
  __device__ int step() const { return gridDim.x; }
  __device__ int count() const { return items_before_[kMaxExperts]; }
  __device__ int part() const { return 0; }
  __device__ int parts() const { return 1; }

  // By whole warps.
  __device__ Item item(int i) const {
    int e = 0;  // how many experts' items are all before i
    for (int base = 0; base < experts_; base += 32)
      e += __popc(__ballot_sync(~0u, items_before_[base + threadIdx.x % 32 + 1] <= i));
    const int local = i - items_before_[e], across = columns(e);
    const int group = local / across * S::kGroups, row = first_[e] + local % across * S::kColumns;
    return {.tile   = (int64_t{e} * groups_ + group) * depth_,
            .depth  = depth_,
            .begin  = 0,
            .end    = depth_,
            .group  = group,
            .groups = min(S::kGroups, groups_ - group),
            .row    = row,
            .rows   = min(S::kColumns, first_[e + 1] - row),
            .expert = e};
  }

 private:
  __device__ int columns(int e) const { return (first_[e + 1] - first_[e] + S::kColumns - 1) / S::kColumns; }

  const int32_t* first_;
  int experts_, groups_, depth_;
  const int* items_before_ = nullptr;
};

struct StoresGated {
  StoreGated store;  // with the biases of all experts
  int64_t rows;

  __device__ StoreGated of(const Item& item) const {
    StoreGated of_expert = store;
    of_expert.bias += item.expert * rows;
    return of_expert;
  }
};

struct StoresWeighted {
  StoreWeighted store;  // with the biases of all experts
  int64_t rows;
  const int32_t* slot;
  const float* weights;

  struct OfExpert {
    StoreWeighted store;
    const int32_t* slot;
    const float* weights;

    struct Given {
      StoreWeighted::Given bias;
      int slot;
      float weight;
    };
    __device__ Given read(int p, int i) const { return {store.read(p), slot[i], weights[slot[i]]}; }
    __device__ void operator()(int p, int, float low, float high, const Given& given) const {
      store(p, given.slot, low, high, given.weight, given.bias);
    }
  };

  __device__ OfExpert of(const Item& item) const {
    OfExpert of_expert{store, slot, weights};
    of_expert.store.bias += item.expert * rows;
    return of_expert;
  }
};

template <class S, class Stores>
void launch_experts(View<const bf16, 2> x, const ExpertRows& rows, const PackedExperts& w,
                    const Stores& stores, StreamRef stream) {
  launch_products<S>(x, Mxfp4Tiles{w.tiles, w.scales}, ExpertWork<S>(rows, w), stores,
                     S::kBlocks * multiprocessors(), 1, stream);
}

// As many rows in an item as twice the mean of an expert: it is seldom that one needs two.
template <class Stores>
void launch_for_rows(View<const bf16, 2> x, const ExpertRows& rows, const PackedExperts& w,
                     const Stores& stores, StreamRef stream) {
  FATHOM_EXPECT(
      rows.first.extent(0) == w.experts + 1 && w.experts <= kMaxExperts &&
          rows.slot.extent(0) == x.extent(0) && x.extent(1) <= w.depth,
      "experts of many rows: first is [E + 1], E up to 128, slot as many as rows of at most w.depth columns");
  if (x.extent(0) == 0) return;
  const int64_t twice = 2 * x.extent(0);
  if (twice <= 16 * w.experts) return launch_experts<Shape<16, 2, 1, 3, 5, 2>>(x, rows, w, stores, stream);
  if (twice <= 32 * w.experts) return launch_experts<Shape<32, 4, 1, 4, 4, 1>>(x, rows, w, stores, stream);
  if (twice <= 64 * w.experts) return launch_experts<Shape<64, 2, 2, 3, 4, 1>>(x, rows, w, stores, stream);
  launch_experts<Shape<128, 2, 2, 2, 4, 1>>(x, rows, w, stores, stream);
}

}  // namespace

void experts_up_many(View<const bf16, 2> sorted, const ExpertRows& rows, const PackedExperts& w1, float limit,
                     float alpha, View<bf16, 2> a, StreamRef stream) {
  FATHOM_EXPECT(a.extent(0) == sorted.extent(0) && a.extent(1) >= w1.rows / 2 && a.stride(1) == 1,
                "experts_up_many: a is [T top_k, units]");
  launch_for_rows(sorted, rows, w1,
                  StoresGated{.store = {.a     = a.data(),
                                        .units = a.stride(0),
                                        .bias  = w1.bias,
                                        .times = w1.times,
                                        .limit = limit,
                                        .alpha = alpha},
                              .rows  = w1.rows},
                  stream);
}

void experts_down_many(View<const bf16, 2> a, const ExpertRows& rows, View<const float, 2> weights,
                       const PackedExperts& w2, View<float, 2> slots, StreamRef stream) {
  FATHOM_EXPECT(slots.extent(0) == a.extent(0) && weights.size() == a.extent(0) && weights.contiguous() &&
                    slots.contiguous() && slots.extent(1) <= w2.rows,
                "experts_down_many: slots is [T top_k, H], weights [T, top_k], contiguous");
  launch_for_rows(
      a, rows, w2,
      StoresWeighted{
          .store   = {.y = slots.data(), .hidden = slots.extent(1), .bias = w2.bias, .times = w2.times},
          .rows    = w2.rows,
          .slot    = rows.slot.data(),
          .weights = weights.data()},
      stream);
}

}  // namespace fathom::kernels
