#include "engine/grammar_constraint.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "core/expect.h"

namespace fathom::engine {
namespace {

// A schema with many alternatives that stay alike would hold up all requests. What is found until then is
// right, and holds every token of one byte: whatever may be written can be written.
constexpr int64_t kMaxWork = 1'000'000;

// Visits the nodes whose bytes the matcher takes, with the matcher there; it ends where it began. All of the
// first level, and below it until `max_work` is done.
template <class Visit>
void walk(const ByteTrie& trie, JsonMatcher& matcher, int64_t max_work, Visit visit) {
  visit(0);
  for (size_t i = 1; i < trie.size(); i = trie.nodes[i].after)
    if (matcher.push(trie.nodes[i].byte)) {
      visit(i);
      matcher.pop();
    }
  max_work += matcher.work();
  size_t depth = 0;  // steps that the matcher is ahead
  for (size_t i = 1; i < trie.size() && matcher.work() < max_work;) {
    const ByteTrie::Node& node = trie.nodes[i];
    for (; depth >= node.depth; --depth) matcher.pop();
    if (!matcher.push(node.byte)) {
      i = node.after;
      continue;
    }
    ++depth;
    visit(i++);
  }
  for (; depth > 0; --depth) matcher.pop();
}

}  // namespace

void keep_allowed(std::span<const uint8_t> allowed, std::span<float> logits) {
  // By bits: half the tokens are often forbidden, and a branch would be mispredicted for each.
  constexpr auto kForbidden = std::bit_cast<uint32_t>(-std::numeric_limits<float>::infinity());
  std::transform(
      logits.begin(), logits.end(), allowed.begin(), logits.begin(), [](float logit, uint8_t is_allowed) {
        const uint32_t mask = is_allowed - 1u;
        return std::bit_cast<float>((std::bit_cast<uint32_t>(logit) & ~mask) | (kForbidden & mask));
      });
}

GrammarConstraint::GrammarConstraint(std::shared_ptr<const TokenTrie> trie,
                                     std::shared_ptr<const JsonGrammar> grammar,
                                     std::vector<model::TokenId> end_ids)
    : trie_(std::move(trie)), end_ids_(std::move(end_ids)), matcher_(std::move(grammar)) {
  FATHOM_EXPECT(!end_ids_.empty(), "an end of the value is needed: without one nothing may follow it");
  for (const model::TokenId id : end_ids_)
    FATHOM_EXPECT(id >= 0 && id < trie_->vocab_size, "an end id beyond the vocabulary");
}

void GrammarConstraint::restrict(std::span<float> logits) {
  FATHOM_EXPECT(static_cast<int64_t>(logits.size()) == trie_->vocab_size, "logits of another vocabulary");
  allowed_.assign(logits.size(), 0);
  if (!ended_) allow_tokens();
  if (ended_ || matcher_.complete())
    for (const model::TokenId id : end_ids_) allowed_[static_cast<size_t>(id)] = 1;
  FATHOM_EXPECT(std::find(allowed_.begin(), allowed_.end(), 1) != allowed_.end(),
                "a grammar with a dead end");
  keep_allowed(allowed_, logits);
}

void GrammarConstraint::allow_tokens() {
  const auto strings = matcher_.open_strings();
  if (!strings.empty()) allow_in_strings(strings);
  if (!matcher_.push_others()) return;
  walk(trie_->tokens, matcher_, kMaxWork, [&](size_t node) {
    for (const auto& entry : trie_->tokens.at(node)) allowed_[static_cast<size_t>(entry.id)] = 1;
  });
  matcher_.pop();
}

void GrammarConstraint::allow_in_strings(std::span<const JsonMatcher::OpenString> strings) {
  int64_t room = 0;
  for (const auto& string : strings) room = std::max(room, string.max);
  const auto most = static_cast<uint8_t>(std::min<int64_t>(room, TokenTrie::kLeavesString - 1));
  std::transform(trie_->characters_in_string.begin(), trie_->characters_in_string.end(), allowed_.begin(),
                 [most](uint8_t characters) { return static_cast<uint8_t>(characters <= most); });
  const auto ways = static_cast<int64_t>(strings.size());
  for (const auto& string : strings) {
    matcher_.push_closed(string.way);
    walk(trie_->closings, matcher_, kMaxWork / ways, [&](size_t node) {
      for (const auto& entry : trie_->closings.at(node))
        if (entry.characters >= string.min && entry.characters <= string.max)
          allowed_[static_cast<size_t>(entry.id)] = 1;
    });
    matcher_.pop();
  }
}

void GrammarConstraint::accept(model::TokenId id) {
  if (std::find(end_ids_.begin(), end_ids_.end(), id) != end_ids_.end()) {
    FATHOM_EXPECT(ended_ || matcher_.complete(), "the text ends before its value is whole");
    ended_ = true;
    return;
  }
  FATHOM_EXPECT(!ended_, "text after the end");
  FATHOM_EXPECT(id >= 0 && id < trie_->vocab_size && trie_->is_text[static_cast<size_t>(id)] != 0,
                "a token without text within a JSON value");
  for (const char c : trie_->tokenizer->bytes(id))
    FATHOM_EXPECT(matcher_.push(static_cast<uint8_t>(c)), "a token that the grammar does not allow");
  matcher_.commit();
}

}  // namespace fathom::engine
