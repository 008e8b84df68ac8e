#include "book/cache_model.h"

namespace fathom::book {
namespace {

constexpr int32_t kElement = 4;

bool is_power_of_two(int32_t x) { return x > 0 && (x & (x - 1)) == 0; }

int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

class Writer {
 public:
  Writer(uint32_t* out, int32_t room) : out_(out), room_(room) {}

  void touch(int64_t element) {
    if (count_ < room_) out_[count_] = static_cast<uint32_t>(element * kElement);
    ++count_;
  }
  int32_t count() const { return count_ <= room_ ? static_cast<int32_t>(count_) : -1; }

 private:
  uint32_t* out_;
  int64_t room_;
  int64_t count_ = 0;
};

void transpose(const LoopNest& nest, int32_t tile, Writer& trace) {
  const int64_t matrix = static_cast<int64_t>(nest.n) * nest.stride;
  for (int32_t i0 = 0; i0 < nest.n; i0 += tile)
    for (int32_t j0 = 0; j0 < nest.n; j0 += tile)
      for (int32_t i = i0; i < smaller(i0 + tile, nest.n); ++i)
        for (int32_t j = j0; j < smaller(j0 + tile, nest.n); ++j) {
          trace.touch(static_cast<int64_t>(i) * nest.stride + j);
          trace.touch(matrix + static_cast<int64_t>(j) * nest.stride + i);
        }
}

void matmul(const LoopNest& nest, int32_t tile, Writer& trace) {
  const int64_t ld = nest.stride, matrix = nest.n * ld;
  const bool ijk = nest.pattern == Pattern::matmul_ijk;
  // The middle and the inner loop are j and k in the order ijk, k and j in the order ikj.
  for (int32_t i0 = 0; i0 < nest.n; i0 += tile)
    for (int32_t m0 = 0; m0 < nest.n; m0 += tile)
      for (int32_t l0 = 0; l0 < nest.n; l0 += tile)
        for (int32_t i = i0; i < smaller(i0 + tile, nest.n); ++i)
          for (int32_t m = m0; m < smaller(m0 + tile, nest.n); ++m)
            for (int32_t l = l0; l < smaller(l0 + tile, nest.n); ++l) {
              const int32_t j = ijk ? m : l, k = ijk ? l : m;
              trace.touch(i * ld + k);
              trace.touch(matrix + k * ld + j);
              trace.touch(2 * matrix + i * ld + j);
            }
}

}  // namespace

bool Cache::possible(const CacheShape& shape) {
  return is_power_of_two(shape.sets) && is_power_of_two(shape.ways) && is_power_of_two(shape.line_bytes) &&
         shape.ways <= kMaxWays && shape.sets <= kMaxLines / shape.ways && shape.policy >= Policy::lru &&
         shape.policy <= Policy::plru;
}

void Cache::reset(const CacheShape& shape) {
  shape_ = shape;
  now_   = 0;
  for (int32_t i = 0; i < shape.sets * shape.ways; ++i) {
    line_[i]  = -1;
    stamp_[i] = 0;
  }
  for (int32_t set = 0; set < shape.sets; ++set) tree_[set] = 0;
}

CacheAccess Cache::access(uint32_t address) {
  const int32_t line = static_cast<int32_t>(address / static_cast<uint32_t>(shape_.line_bytes));
  const int32_t set  = line & (shape_.sets - 1);
  CacheAccess done{.hit = false, .set = set, .way = 0, .line = line, .evicted = -1};
  for (int32_t way = 0; way < shape_.ways && !done.hit; ++way)
    if (line_at(set, way) == line) {
      done.hit = true;
      done.way = way;
    }
  if (!done.hit) {
    done.way     = victim(set);
    done.evicted = line_at(set, done.way);
  }
  const int32_t at = set * shape_.ways + done.way;
  line_[at]        = line;
  if (!done.hit || shape_.policy == Policy::lru) stamp_[at] = ++now_;
  point_away(set, done.way);
  return done;
}

int32_t Cache::line_at(int32_t set, int32_t way) const { return line_[set * shape_.ways + way]; }

// An empty way if there is one, else what the policy names.
int32_t Cache::victim(int32_t set) const {
  int32_t oldest = 0;
  for (int32_t way = 0; way < shape_.ways; ++way) {
    if (line_at(set, way) < 0) return way;
    if (stamp_[set * shape_.ways + way] < stamp_[set * shape_.ways + oldest]) oldest = way;
  }
  if (shape_.policy != Policy::plru) return oldest;
  int32_t node = 1;
  while (node < shape_.ways) node = 2 * node + static_cast<int32_t>(tree_[set] >> node & 1);
  return node - shape_.ways;
}

// Every node on the way's path points to the other half.
void Cache::point_away(int32_t set, int32_t way) {
  for (int32_t node = way + shape_.ways; node > 1; node /= 2) {
    const uint64_t bit = uint64_t{1} << (node / 2);
    tree_[set]         = node & 1 ? tree_[set] & ~bit : tree_[set] | bit;
  }
}

int32_t ReuseStack::access(int32_t line) {
  int32_t at = 0;
  while (at < depth_ && line_[at] != line) ++at;
  const int32_t distance = at < depth_ ? at : kFirst;
  if (distance == kFirst) {
    if (depth_ < kMaxLines) ++depth_;
    at = depth_ - 1;
  }
  for (; at > 0; --at) line_[at] = line_[at - 1];
  line_[0] = line;
  return distance;
}

int32_t make_trace(const LoopNest& nest, uint32_t* addresses, int32_t room) {
  constexpr int32_t kMax = 1 << 14;  // so that no address and no product overflows
  const bool matrix      = nest.pattern != Pattern::stride;
  if (nest.pattern < Pattern::stride || nest.pattern > Pattern::matmul_ikj || nest.n < 0 || nest.n > kMax ||
      nest.stride < 0 || nest.stride > kMax || (matrix && nest.stride < nest.n) || nest.tile < 0 ||
      nest.passes < 0 || nest.passes > kMax)
    return -1;
  int64_t touches = nest.passes;
  for (int32_t loop = 0; loop < (!matrix ? 1 : nest.pattern < Pattern::matmul_ijk ? 2 : 3); ++loop)
    if ((touches *= nest.n) > room) return -1;
  // Three matrices reach 3 n stride elements; 2^31 bytes are 2^29 elements.
  if (static_cast<int64_t>(nest.n) * nest.stride * (matrix ? 3 : 1) > int64_t{1} << 29) return -1;

  const int32_t tile = nest.tile > 0 && nest.tile < nest.n ? nest.tile : nest.n;
  Writer trace(addresses, room);
  for (int32_t pass = 0; pass < nest.passes; ++pass) {
    switch (nest.pattern) {
      case Pattern::stride:
        for (int64_t i = 0; i < nest.n; ++i) trace.touch(i * nest.stride);
        break;
      case Pattern::rows:
        for (int64_t i = 0; i < nest.n; ++i)
          for (int64_t j = 0; j < nest.n; ++j) trace.touch(i * nest.stride + j);
        break;
      case Pattern::columns:
        for (int64_t j = 0; j < nest.n; ++j)
          for (int64_t i = 0; i < nest.n; ++i) trace.touch(i * nest.stride + j);
        break;
      case Pattern::transpose:
        transpose(nest, tile, trace);
        break;
      case Pattern::matmul_ijk:
      case Pattern::matmul_ikj:
        matmul(nest, tile, trace);
        break;
    }
  }
  return trace.count();
}

}  // namespace fathom::book
