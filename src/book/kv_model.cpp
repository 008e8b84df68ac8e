#include "book/kv_model.h"

namespace fathom::book {
namespace {

constexpr int32_t kNoContent = -1;

void remove_at(int32_t* list, int32_t& count, int32_t at) {
  for (--count; at < count; ++at) list[at] = list[at + 1];
}

}  // namespace

void KvAllocator::reset(const KvOptions& options, const KvRequest* requests, int32_t count) {
  options_ = options;
  count_   = count;
  time_ = releases_ = found_tokens_ = evicted_ = preempted_ = running_count_ = queue_count_ = 0;
  for (int32_t r = 0; r < count; ++r) {
    request_[r]        = requests[r];
    const int32_t most = request_[r].prompt + request_[r].output;
    const bool fits    = options.placement == Placement::paged
                             ? blocks_of(most) <= options.blocks
                             : most <= options.reserve && blocks_of(options.reserve) <= options.blocks;
    state_[r]          = fits ? RequestState::expected : RequestState::too_long;
    tokens_[r]         = request_[r].prompt;
    found_[r] = table_size_[r] = 0;
  }
  for (Block& block : blocks_) block = {0, 0, kNoContent, 0};
}

int32_t KvAllocator::blocks_of(int32_t tokens) const {
  return (tokens + options_.block_size - 1) / options_.block_size;
}

// Tokens are the same in all requests up to `shared`, so block i stands for a shared prefix or for a
// request's own.
int32_t KvAllocator::content_of(int32_t request, int32_t i) const {
  const int32_t end = (i + 1) * options_.block_size, prompt = request_[request].prompt;
  const bool is_shared = end <= options_.shared && end <= prompt;
  return (is_shared ? 0 : request + 1) * kMostBlocks + i;
}

int32_t KvAllocator::find(int32_t content) const {
  for (int32_t b = 0; b < options_.blocks; ++b)
    if (blocks_[b].content == content) return b;
  return -1;
}

int32_t KvAllocator::unheld() const {
  int32_t count = 0;
  for (int32_t b = 0; b < options_.blocks; ++b) count += blocks_[b].references == 0;
  return count;
}

// A block that nobody holds: an empty one, or else the one that was released first, whose tokens are
// forgotten.
int32_t KvAllocator::take() {
  int32_t best = -1;
  for (int32_t b = 0; b < options_.blocks; ++b) {
    if (blocks_[b].references > 0) continue;
    const bool is_empty = blocks_[b].content == kNoContent;
    if (best < 0 || (is_empty && blocks_[best].content != kNoContent) ||
        (!is_empty && blocks_[best].content != kNoContent && blocks_[b].released < blocks_[best].released))
      best = b;
  }
  evicted_ += blocks_[best].content != kNoContent;
  blocks_[best] = {1, 0, kNoContent, 0};
  return best;
}

// Stores tokens behind those of the blocks that the request has; enough blocks are not held.
void KvAllocator::append(int32_t request, int32_t tokens) {
  const int32_t size = options_.block_size;
  for (int32_t position = tokens_[request] - tokens; position < tokens_[request]; ++position) {
    const int32_t i = position / size;
    if (i == table_size_[request]) table_[request][table_size_[request]++] = take();
    Block& block            = blocks_[table_[request][i]];
    block.filled            = position % size + 1;
    const bool may_be_found = options_.sharing != Sharing::none && options_.placement == Placement::paged;
    if (may_be_found && block.filled == size && find(content_of(request, i)) < 0)
      block.content = content_of(request, i);
  }
}

// The last block first: a prefix is worth most when it is there from its beginning.
void KvAllocator::release(int32_t request) {
  for (int32_t i = table_size_[request] - 1; i >= 0; --i) {
    Block& block = blocks_[table_[request][i]];
    if (--block.references > 0) continue;
    block.released = releases_++;
    if (options_.sharing != Sharing::until_evicted) block.content = kNoContent;
    if (block.content == kNoContent) block.filled = 0;
  }
  table_size_[request] = 0;
}

void KvAllocator::preempt_last() {
  const int32_t victim = running_[--running_count_];
  release(victim);
  state_[victim] = RequestState::waiting;
  for (int32_t i = queue_count_++; i > 0; --i) queue_[i] = queue_[i - 1];
  queue_[0] = victim;
  ++preempted_;
}

bool KvAllocator::admit(int32_t request) {
  if (options_.placement == Placement::contiguous) return admit_contiguous(request);
  const int32_t tokens = tokens_[request], size = options_.block_size;
  int32_t matched = 0, unheld_matched = 0;
  if (options_.sharing != Sharing::none)
    for (; (matched + 1) * size < tokens; ++matched) {
      const int32_t block = find(content_of(request, matched));
      if (block < 0) break;
      unheld_matched += blocks_[block].references == 0;
      table_[request][matched] = block;
    }
  if (blocks_of(tokens) - matched > unheld() - unheld_matched) return false;
  for (int32_t i = 0; i < matched; ++i) ++blocks_[table_[request][i]].references;
  table_size_[request] = matched;
  found_[request]      = matched * size;
  found_tokens_ += matched * size;
  append(request, tokens - matched * size);
  return true;
}

bool KvAllocator::admit_contiguous(int32_t request) {
  const int32_t wanted = blocks_of(options_.reserve);
  for (int32_t run = 0, b = 0; b < options_.blocks; ++b) {
    run = blocks_[b].references == 0 ? run + 1 : 0;
    if (run < wanted) continue;
    const int32_t first = b - wanted + 1;
    for (int32_t i = 0; i < wanted; ++i) {
      table_[request][i] = first + i;
      blocks_[first + i] = {1, 0, kNoContent, 0};
    }
    table_size_[request] = wanted;
    append(request, tokens_[request]);
    return true;
  }
  return false;
}

bool KvAllocator::step() {
  for (int32_t at = 0; at < running_count_;) {
    const int32_t r = running_[at];
    if (tokens_[r] < request_[r].prompt + request_[r].output) {
      ++at;
      continue;
    }
    release(r);
    state_[r] = RequestState::finished;
    remove_at(running_, running_count_, at);
  }
  for (int32_t at = 0; at < running_count_; ++at) {
    const int32_t r = running_[at];
    // A request that is preempted here leaves the loop, for it is the last.
    while (at < running_count_ && tokens_[r] == table_size_[r] * options_.block_size && unheld() == 0)
      preempt_last();
    if (at == running_count_) break;
    ++tokens_[r];
    append(r, 1);
  }
  for (int32_t r = 0; r < count_; ++r)
    if (state_[r] == RequestState::expected && request_[r].arrival <= time_) {
      state_[r]              = RequestState::waiting;
      queue_[queue_count_++] = r;
    }
  while (queue_count_ > 0 && admit(queue_[0])) {
    state_[queue_[0]]          = RequestState::running;
    running_[running_count_++] = queue_[0];
    remove_at(queue_, queue_count_, 0);
  }
  ++time_;
  for (int32_t r = 0; r < count_; ++r)
    if (state_[r] != RequestState::finished && state_[r] != RequestState::too_long) return true;
  return false;
}

bool KvAllocator::cached(int32_t block) const {
  return blocks_[block].references == 0 && blocks_[block].content != kNoContent;
}

KvCounts KvAllocator::counts() const {
  KvCounts counts{.found = found_tokens_, .evicted = evicted_, .preempted = preempted_};
  int32_t gap = 0;
  for (int32_t b = 0; b < options_.blocks; ++b) {
    const bool held = blocks_[b].references > 0;
    counts.in_use += held;
    counts.cached += cached(b);
    if (held) counts.filled += blocks_[b].filled;
    gap                = held ? 0 : gap + 1;
    counts.longest_gap = gap > counts.longest_gap ? gap : counts.longest_gap;
  }
  for (int32_t i = 0; i < running_count_; ++i)
    counts.unshared +=
        options_.placement == Placement::paged ? blocks_of(tokens_[running_[i]]) : table_size_[running_[i]];
  return counts;
}

}  // namespace fathom::book
