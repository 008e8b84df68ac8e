#include "model/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <utility>

#include "core/expect.h"

namespace fathom::model {
namespace {

uint64_t candidate(int32_t rank, int32_t position) {
  return uint64_t{static_cast<uint32_t>(rank)} << 32 | static_cast<uint32_t>(position);
}

}  // namespace

void MergeTable::reserve(size_t size) {
  const size_t slots = std::bit_ceil(std::max<size_t>(2 * size, 16));
  if (slots <= slots_.size()) return;
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots));
  shift_                      = 64 - std::countr_zero(slots);
  for (const Slot& slot : old)
    if (slot.key != kEmpty) slots_[place(slot.key)] = slot;
}

void MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  FATHOM_EXPECT(left >= 0 && right >= 0, "a merge needs two tokens");
  if (2 * (size_ + 1) > slots_.size()) reserve(std::max<size_t>(2 * size_, 8));
  Slot& slot = slots_[place(key(left, right))];
  size_ += slot.key == kEmpty;
  slot = {key(left, right), merge};
}

void BpeMerger::propose(int32_t left) {
  if (left < 0 || nodes_[left].next < 0) return;
  if (const Merge* merge = merges_.find(nodes_[left].id, nodes_[nodes_[left].next].id))
    heap_.push_back(candidate(merge->rank, left));
}

void BpeMerger::merge(std::span<const TokenId> piece, std::vector<TokenId>& out) {
  FATHOM_EXPECT(piece.size() < static_cast<size_t>(std::numeric_limits<int32_t>::max()),
                "a piece of 2^31 bytes or more: bound the size of a request first");
  const auto n = static_cast<int32_t>(piece.size());
  nodes_.resize(n);
  heap_.clear();
  for (int32_t i = 0; i < n; ++i) nodes_[i] = {piece[i], i - 1, i + 1 < n ? i + 1 : -1};
  for (int32_t i = 0; i < n; ++i) propose(i);
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());

  while (!heap_.empty()) {
    ++steps_;
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto rank     = static_cast<int32_t>(heap_.back() >> 32);
    const auto position = static_cast<int32_t>(heap_.back() & 0xFFFFFFFF);
    heap_.pop_back();

    Node& left = nodes_[position];
    if (left.id < 0 || left.next < 0) continue;
    const Merge* merge = merges_.find(left.id, nodes_[left.next].id);
    if (!merge || merge->rank != rank) continue;  // one side has merged with something else since

    Node& right = nodes_[left.next];
    left.id     = merge->merged;
    left.next   = right.next;
    right.id    = -1;
    if (left.next >= 0) nodes_[left.next].previous = position;
    for (const int32_t pair : {left.previous, position}) {
      const size_t before = heap_.size();
      propose(pair);
      if (heap_.size() > before) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }
  }
  for (int32_t i = n > 0 ? 0 : -1; i >= 0; i = nodes_[i].next) out.push_back(nodes_[i].id);
}

}  // namespace fathom::model
