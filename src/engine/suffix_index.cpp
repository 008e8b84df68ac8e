#include "engine/suffix_index.h"

#include <algorithm>

namespace fathom::engine {
namespace {

using model::TokenId;

// Keys of the n-grams of 1, 2, .. at most `depth` tokens that end at tokens[end - 1].
void suffix_keys(std::span<const TokenId> tokens, int64_t end, int64_t depth, std::vector<uint64_t>& keys) {
  keys.clear();
  uint64_t hash = 0x243f6a8885a308d3;
  for (int64_t n = 1; n <= std::min(depth, end); ++n) {
    hash = (hash ^ static_cast<uint64_t>(tokens[static_cast<size_t>(end - n)])) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
    keys.push_back(hash);
  }
}

uint64_t pair_ending_at(std::span<const TokenId> tokens, int64_t end) {
  return uint64_t{static_cast<uint32_t>(tokens[static_cast<size_t>(end - 2)])} << 32 |
         static_cast<uint32_t>(tokens[static_cast<size_t>(end - 1)]);
}

}  // namespace

void SequenceMatcher::extend(std::span<const TokenId> tokens) {
  const auto size = static_cast<int64_t>(tokens.size());
  for (auto end = static_cast<int64_t>(previous_.size()); end <= size; ++end) {
    const auto [at, is_new] = latest_.try_emplace(pair_ending_at(tokens, end), -1);
    previous_.push_back(at->second);
    at->second = static_cast<int32_t>(end);
  }
}

SequenceMatcher::Match SequenceMatcher::longest(std::span<const TokenId> tokens) const {
  const auto size = static_cast<int64_t>(tokens.size());
  Match best;
  if (size < 2 || static_cast<int64_t>(previous_.size()) <= size) return best;
  int64_t end = previous_[static_cast<size_t>(size)];
  for (int64_t tried = 0; end >= 0 && tried < kCandidates; ++tried) {
    int64_t length = 2;
    while (length < std::min(end, kLongest) &&
           tokens[static_cast<size_t>(end - 1 - length)] == tokens[static_cast<size_t>(size - 1 - length)])
      ++length;
    if (length > best.length) best = {.end = end, .length = length};
    if (best.length == kLongest) break;
    end = previous_[static_cast<size_t>(end)];
  }
  return best;
}

SuffixIndex::SuffixIndex(int64_t depth, int64_t max_nodes)
    : depth_(depth), generation_nodes_(std::max<int64_t>(max_nodes / 2, 1)) {}

const SuffixIndex::Node* SuffixIndex::Generation::find(uint64_t key) const {
  const size_t mask = slots.size() - 1;
  for (size_t at = key & mask; slots[at].key != 0; at = (at + 1) & mask)
    if (slots[at].key == key) return &slots[at];
  return nullptr;
}

SuffixIndex::Node& SuffixIndex::Generation::insert(uint64_t key) {
  const size_t mask = slots.size() - 1;
  size_t at         = key & mask;
  while (slots[at].key != 0 && slots[at].key != key) at = (at + 1) & mask;
  if (slots[at].key == 0) slots[at].key = key, ++used;
  return slots[at];
}

void SuffixIndex::Generation::reserve(int64_t more) {
  if (2 * (used + more) <= std::ssize(slots)) return;
  std::vector<Node> smaller(2 * slots.size());
  smaller.swap(slots);
  used = 0;
  for (const Node& node : smaller)
    if (node.key != 0) insert(node.key) = node;
}

void SuffixIndex::add(std::span<const TokenId> tokens, int64_t first) {
  std::vector<uint64_t> contexts, ngrams;
  suffix_keys(tokens, first, depth_, contexts);
  for (int64_t at = first; at < std::ssize(tokens); ++at) {
    const int64_t more = 2 * (depth_ + 1);
    if (young_.used > 0 && young_.used + more > generation_nodes_) {
      old_   = std::move(young_);
      young_ = {};
    }
    young_.reserve(more);
    suffix_keys(tokens, at + 1, depth_ + 1, ngrams);
    const TokenId token = tokens[static_cast<size_t>(at)];
    for (size_t n = 0; n < ngrams.size(); ++n) {
      const uint32_t count = ++young_.insert(ngrams[n]).count;
      if (n == 0) continue;  // it follows the empty context, from which nothing is drafted
      Node& context = young_.insert(contexts[n - 1]);
      context.count = std::max(context.count, count);  // a context before `first` was not counted
      if (context.likeliest != token && count < context.likeliest_count) continue;
      context.likeliest = token, context.likeliest_count = count;
    }
    ngrams.resize(std::min(ngrams.size(), static_cast<size_t>(depth_)));
    contexts.swap(ngrams);
  }
}

// If something followed an n-gram, something followed each of its suffixes: bisection.
SuffixIndex::Context SuffixIndex::longest_context(const Generation& generation,
                                                  std::span<const uint64_t> keys) {
  Context best;
  int64_t none = std::ssize(keys) + 1;
  while (none - best.length > 1) {
    const int64_t middle = (best.length + none) / 2;
    const Node* node     = generation.find(keys[static_cast<size_t>(middle - 1)]);
    if (node && node->likeliest >= 0) {
      best = {.node = node, .length = middle};
    } else {
      none = middle;
    }
  }
  return best;
}

Draft SuffixIndex::continue_from(std::span<const TokenId> tokens, int64_t count) const {
  Draft draft;
  std::vector<TokenId> text(tokens.end() - std::min(depth_, std::ssize(tokens)), tokens.end());
  std::vector<uint64_t> keys;
  double share = 1;
  for (int64_t most = count; draft.size() < most;) {
    suffix_keys(text, std::ssize(text), depth_, keys);
    Context context = longest_context(young_, keys);
    if (const Context older = longest_context(old_, keys); older.length > context.length) context = older;
    if (draft.size() == 0) most = std::min(count, context.length);
    if (!context.node) break;
    const double likely = context.node->likeliest_count / (context.node->count + 0.5);
    share *= likely;
    if (share < kLeastShare) break;
    draft.add(context.node->likeliest, likely);
    text.push_back(context.node->likeliest);
  }
  return draft;
}

}  // namespace fathom::engine
