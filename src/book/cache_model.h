// A set-associative cache, reuse distances and traces of loop nests: the model of the book's cache simulator.
// Freestanding, without the standard library: it is compiled to WebAssembly too
//.
#pragma once

#include <stdint.h>

namespace fathom::book {

enum class Policy : int32_t { lru, fifo, plru };

struct CacheShape {
  int32_t sets       = 8;  // sets, ways and line_bytes are powers of two
  int32_t ways       = 2;
  int32_t line_bytes = 64;
  Policy policy      = Policy::lru;
};

struct CacheAccess {
  bool hit;
  int32_t set;
  int32_t way;
  int32_t line;     // its number in memory: address / line_bytes
  int32_t evicted;  // the line that left, or -1
};

class Cache {
 public:
  static constexpr int32_t kMaxLines = 4096;
  static constexpr int32_t kMaxWays  = 64;

  static bool possible(const CacheShape& shape);

  void reset(const CacheShape& shape);  // empties it; the shape must be possible
  CacheAccess access(uint32_t address);
  int32_t line_at(int32_t set, int32_t way) const;  // -1: empty

 private:
  int32_t victim(int32_t set) const;
  void point_away(int32_t set, int32_t way);

  CacheShape shape_ = {0, 0, 0, Policy::lru};  // all zero, so that a static one takes no room in the module
  uint32_t now_     = 0;
  int32_t line_[kMaxLines];
  uint32_t stamp_[kMaxLines];  // LRU: last use; FIFO: arrival
  uint64_t tree_[kMaxLines];   // PLRU, per set: bit i of node i (root 1) is the half to evict from next
};

// Mattson's stack (1970): the distance of an access is the number of distinct other lines since the last
// access to its line. A fully associative LRU cache of c lines hits exactly the accesses with a distance
// below c, for every c at once.
class ReuseStack {
 public:
  static constexpr int32_t kMaxLines = 8192;
  static constexpr int32_t kFirst    = -1;

  void reset() { depth_ = 0; }
  int32_t access(int32_t line);  // its distance, or kFirst; a line beyond kMaxLines pushes out the oldest

 private:
  int32_t depth_ = 0;
  int32_t line_[kMaxLines];  // the last used first
};

enum class Pattern : int32_t { stride, rows, columns, transpose, matmul_ijk, matmul_ikj };

// A loop nest over 4-byte elements. Matrices are n x n with rows `stride` elements apart, one behind the
// other.
struct LoopNest {
  Pattern pattern = Pattern::stride;
  int32_t n       = 256;  // stride: reads in a pass; else the matrices' size
  int32_t stride  = 1;
  int32_t tile    = 0;  // transpose and matmul: the loops' tile; 0: none
  int32_t passes  = 1;
};

// Writes the addresses that the nest touches and returns their count; -1 when there are more than `room` or
// the nest is impossible (nothing negative, rows that overlap, addresses above 2^31).
int32_t make_trace(const LoopNest& nest, uint32_t* addresses, int32_t room);

}  // namespace fathom::book
