#include "engine/block_pool.h"

#include <algorithm>

#include "core/expect.h"

namespace fathom::engine {

void GhostList::add(const BlockHash& hash) {
  if (ring_.empty() || !at_.emplace(hash, next_).second) return;
  BlockHash& slot = ring_[next_];
  // The slot's hash may have been removed, and added anew elsewhere.
  if (const auto old = at_.find(slot); old != at_.end() && old->second == next_ && !(slot == hash))
    at_.erase(old);
  slot  = hash;
  next_ = (next_ + 1) % ring_.size();
}

bool GhostList::remove(const BlockHash& hash) { return at_.erase(hash) > 0; }

BlockPool::BlockPool(int64_t pages, EvictionPolicy policy)
    : policy_(policy),
      state_(static_cast<size_t>(pages)),
      links_(static_cast<size_t>(pages) + 2),
      ghosts_{GhostList(policy == EvictionPolicy::adaptive ? pages : 0),
              GhostList(policy == EvictionPolicy::adaptive ? pages : 0)} {
  for (const Ring ring : {kOnce, kAgain})
    links_[static_cast<size_t>(head(ring))] = {.before = head(ring), .after = head(ring)};
  for (Page page = 0; page < static_cast<Page>(pages); ++page)
    insert(page, links_[static_cast<size_t>(head(kOnce))].before);
  cached_.reserve(static_cast<size_t>(pages));
}

void BlockPool::insert(Page page, Page after) {
  Link& front                                     = links_[static_cast<size_t>(after)];
  links_[static_cast<size_t>(page)]               = {.before = after, .after = front.after};
  links_[static_cast<size_t>(front.after)].before = page;
  front.after                                     = page;
  ++free_;
  ++free_in_[state_[static_cast<size_t>(page)].ring];
}

void BlockPool::unlink(Page page) {
  const Link link                                = links_[static_cast<size_t>(page)];
  links_[static_cast<size_t>(link.before)].after = link.after;
  links_[static_cast<size_t>(link.after)].before = link.before;
  --free_;
  --free_in_[state_[static_cast<size_t>(page)].ring];
}

Page BlockPool::page_to_evict() const {
  const Page once = first(kOnce);
  if (free_in_[kOnce] == 0) return first(kAgain);
  if (free_in_[kAgain] == 0 || !state_[static_cast<size_t>(once)].hash) return once;
  return free_in_[kOnce] > target_once_ ? once : first(kAgain);
}

Page BlockPool::allocate() {
  FATHOM_EXPECT(free_ > 0, "a page is wanted where none is free");
  const Page page = page_to_evict();
  unlink(page);
  State& state = state_[static_cast<size_t>(page)];
  if (state.hash) {
    cached_.erase(*state.hash);
    ghosts_[state.ring].add(*state.hash);
    ++forgotten_;
  }
  state = {.ref_count = 1};
  return page;
}

void BlockPool::add_ref(Page page) {
  State& state = state_[static_cast<size_t>(page)];
  if (state.ref_count == 0) unlink(page);
  ++state.ref_count;
  if (policy_ != EvictionPolicy::lru && state.hash) state.ring = kAgain;
}

void BlockPool::release(Page page) {
  State& state = state_[static_cast<size_t>(page)];
  FATHOM_EXPECT(state.ref_count > 0, "a page without an owner is released");
  if (--state.ref_count > 0) return;
  const Page ring = head(state.ring);
  insert(page, state.hash ? links_[static_cast<size_t>(ring)].before : ring);
}

// A block that was evicted not long ago is computed again. Each such miss moves the target by a page, or by
// as many as the other list is longer, so that the shorter list is heard too.
void BlockPool::learn_from_ghosts(State& state) {
  const auto step = [](const GhostList& of, const GhostList& other) {
    return std::max<int64_t>(other.size() / std::max<int64_t>(of.size(), 1), 1);
  };
  const int64_t more = step(ghosts_[kOnce], ghosts_[kAgain]), less = step(ghosts_[kAgain], ghosts_[kOnce]);
  if (ghosts_[kOnce].remove(*state.hash))
    target_once_ = std::min(target_once_ + more, pages());
  else if (ghosts_[kAgain].remove(*state.hash))
    target_once_ = std::max<int64_t>(target_once_ - less, 0);
  else
    return;
  state.ring = kAgain;
}

void BlockPool::set_hash(Page page, const BlockHash& hash) {
  State& state = state_[static_cast<size_t>(page)];
  if (!cached_.emplace(hash, page).second) return;
  FATHOM_EXPECT(state.ref_count > 0 && !state.hash, "a page is named once, while it has an owner");
  state.hash = hash;
  learn_from_ghosts(state);
}

void BlockPool::reset_prefix_cache() {
  cached_.clear();
  target_once_ = 0;
  for (GhostList& ghosts : ghosts_) ghosts = GhostList(policy_ == EvictionPolicy::adaptive ? pages() : 0);
  for (Page page = 0; page < static_cast<Page>(pages()); ++page) {
    State& state    = state_[static_cast<size_t>(page)];
    const bool free = state.ref_count == 0;
    if (free) unlink(page);
    state.ring = kOnce;
    state.hash.reset();
    if (free) insert(page, links_[static_cast<size_t>(head(kOnce))].before);
  }
}

std::optional<Page> BlockPool::find(const BlockHash& hash) const {
  const auto found = cached_.find(hash);
  if (found == cached_.end()) return {};
  return found->second;
}

}  // namespace fathom::engine
