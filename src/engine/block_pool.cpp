#include "engine/block_pool.h"

#include "core/expect.h"

namespace fathom::engine {

BlockPool::BlockPool(int64_t pages)
    : state_(static_cast<size_t>(pages)), links_(static_cast<size_t>(pages) + 1), free_(pages) {
  const auto count = static_cast<Page>(pages);
  for (Page page = 0; page <= count; ++page)
    links_[static_cast<size_t>(page)] = {.before = page == 0 ? count : page - 1,
                                         .after  = page == count ? 0 : page + 1};
  cached_.reserve(static_cast<size_t>(pages));
}

void BlockPool::insert(Page page, Page after) {
  Link& front                                     = links_[static_cast<size_t>(after)];
  links_[static_cast<size_t>(page)]               = {.before = after, .after = front.after};
  links_[static_cast<size_t>(front.after)].before = page;
  front.after                                     = page;
  ++free_;
}

void BlockPool::unlink(Page page) {
  const Link link                                = links_[static_cast<size_t>(page)];
  links_[static_cast<size_t>(link.before)].after = link.after;
  links_[static_cast<size_t>(link.after)].before = link.before;
  --free_;
}

Page BlockPool::allocate() {
  FATHOM_EXPECT(free_ > 0, "a page is wanted where none is free");
  const Page page = links_.back().after;
  unlink(page);
  State& state = state_[static_cast<size_t>(page)];
  if (state.hash) {
    cached_.erase(*state.hash);
    ++forgotten_;
  }
  state = {.ref_count = 1};
  return page;
}

void BlockPool::add_ref(Page page) {
  State& state = state_[static_cast<size_t>(page)];
  if (state.ref_count == 0) unlink(page);
  ++state.ref_count;
}

void BlockPool::release(Page page) {
  State& state = state_[static_cast<size_t>(page)];
  FATHOM_EXPECT(state.ref_count > 0, "a page without an owner is released");
  if (--state.ref_count > 0) return;
  const auto head = static_cast<Page>(pages());
  insert(page, state.hash ? links_.back().before : head);
}

void BlockPool::set_hash(Page page, const BlockHash& hash) {
  State& state = state_[static_cast<size_t>(page)];
  FATHOM_EXPECT(state.ref_count > 0 && !state.hash, "a page is named once, while it has an owner");
  if (cached_.emplace(hash, page).second) state.hash = hash;
}

std::optional<Page> BlockPool::find(const BlockHash& hash) const {
  const auto found = cached_.find(hash);
  if (found == cached_.end()) return {};
  return found->second;
}

}  // namespace fathom::engine
