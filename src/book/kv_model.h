// A pool of key-value cache blocks and the requests that come and go: paged with shared prefixes, or one
// reserved range for each request. The model of the book's allocator; freestanding, for it is compiled to
// WebAssembly too.
//
// All prompts begin with the same `shared` tokens and go on with tokens of their own. A full block is found
// again by its tokens and all before them. At least one token of a prompt is left to compute, for its logits.
#pragma once

#include <stdint.h>

namespace fathom::book {

inline constexpr int32_t kMostRequests = 12;
inline constexpr int32_t kMostBlocks   = 256;

struct KvRequest {
  int32_t prompt  = 0;  // tokens, at least 1
  int32_t output  = 0;  // tokens that are appended, one a step
  int32_t arrival = 0;  // step
};

enum class Placement : int32_t {
  paged,       // block by block, as tokens come
  contiguous,  // `reserve` tokens in consecutive blocks, at the first place that is free; nothing is shared
};

enum class Sharing : int32_t {
  none,
  in_use,         // blocks that some request holds
  until_evicted,  // and blocks that were released: they are reused last, the longest released first
};

struct KvOptions {
  Placement placement = Placement::paged;
  Sharing sharing     = Sharing::until_evicted;
  int32_t blocks      = 12;
  int32_t block_size  = 16;  // tokens
  int32_t shared      = 32;
  int32_t reserve     = 64;
};

enum class RequestState : int32_t { expected, waiting, running, finished, too_long };

struct KvCounts {
  int32_t in_use      = 0;  // blocks that requests hold, each once
  int32_t cached      = 0;  // released blocks whose tokens can still be found
  int32_t unshared    = 0;  // blocks that the running requests would hold without sharing
  int32_t filled      = 0;  // slots of blocks in use that hold a token
  int32_t longest_gap = 0;  // most consecutive blocks that nobody holds
  int32_t found       = 0;  // since the start: prompt tokens that needed no computing,
  int32_t evicted     = 0;  // blocks whose tokens were forgotten for others,
  int32_t preempted   = 0;  // and requests that had to give up their blocks and compute again
};

class KvAllocator {
 public:
  void reset(const KvOptions& options, const KvRequest* requests, int32_t count);

  // Requests that are complete leave; each running one appends a token, where need be at the cost of the one
  // that was admitted last; then those that wait are admitted in order, as long as their tokens fit. False
  // when nothing is left to do.
  bool step();

  int32_t steps() const { return time_; }
  RequestState state(int32_t request) const { return state_[request]; }
  int32_t tokens(int32_t request) const {
    return tokens_[request];
  }  // stored, or to be stored once it is admitted
  int32_t found(int32_t request) const { return found_[request]; }  // of them, at its last admission
  int32_t table_size(int32_t request) const { return table_size_[request]; }
  int32_t block(int32_t request, int32_t i) const { return table_[request][i]; }
  int32_t references(int32_t block) const { return blocks_[block].references; }
  int32_t filled(int32_t block) const { return blocks_[block].filled; }
  bool cached(int32_t block) const;
  KvCounts counts() const;

 private:
  struct Block {
    int32_t references, filled;
    int32_t content;   // the name of its tokens when it is full and may be found; kNoContent
    int32_t released;  // when, in the order of releases
  };

  int32_t blocks_of(int32_t tokens) const;
  int32_t content_of(int32_t request, int32_t i) const;
  int32_t find(int32_t content) const;
  int32_t unheld() const;
  int32_t take();
  void append(int32_t request, int32_t tokens);
  void release(int32_t request);
  void preempt_last();
  bool admit(int32_t request);
  bool admit_contiguous(int32_t request);

  // All zero, so that a static allocator takes no room in the module.
  KvOptions options_ = {Placement::paged, Sharing::none, 0, 0, 0, 0};
  KvRequest request_[kMostRequests];
  int32_t count_, time_, releases_, found_tokens_, evicted_, preempted_;
  RequestState state_[kMostRequests];
  int32_t tokens_[kMostRequests], found_[kMostRequests], table_size_[kMostRequests];
  int32_t table_[kMostRequests][kMostBlocks];
  int32_t running_[kMostRequests], running_count_;  // in the order of their admission
  int32_t queue_[kMostRequests], queue_count_;
  Block blocks_[kMostBlocks];
};

}  // namespace fathom::book
