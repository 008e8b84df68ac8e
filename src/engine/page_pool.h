// Pages of one kind, their owners, and which of them hold a known prefix. A page that nobody uses keeps what
// it holds until somebody needs it: the one that has been free for longest goes first, blank ones before all.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace fathom::engine {

using Page = int32_t;

// Of a block of tokens and all blocks before it.
struct PrefixHash {
  uint64_t low = 0, high = 0;
  bool operator==(const PrefixHash&) const = default;
};

class PagePool {
 public:
  explicit PagePool(int64_t pages);

  int64_t pages() const { return static_cast<int64_t>(links_.size()) - 1; }
  int64_t free_pages() const { return free_; }
  int owners(Page page) const { return state_[static_cast<size_t>(page)].owners; }

  // A page for one owner; what it held is forgotten. Precondition: free_pages() > 0.
  Page take();
  // One more owner.
  void share(Page page);
  // One owner less.
  void release(Page page);

  // `page`, which has an owner, holds this block from now on. Where another page does so already nothing
  // changes.
  void name(Page page, const PrefixHash& hash);
  std::optional<Page> find(const PrefixHash& hash) const;

 private:
  struct State {
    int owners = 0;
    std::optional<PrefixHash> name;
  };
  struct Link {
    Page before, after;
  };
  struct LowBits {
    size_t operator()(const PrefixHash& hash) const { return hash.low; }
  };

  void insert(Page page, Page after);
  void unlink(Page page);

  std::vector<State> state_;
  std::vector<Link> links_;  // a ring of the free pages, first to go first; the last element is its head
  int64_t free_ = 0;
  std::unordered_map<PrefixHash, Page, LowBits> named_;
};

}  // namespace fathom::engine
