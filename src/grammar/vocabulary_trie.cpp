#include "grammar/vocabulary_trie.h"

#include <algorithm>
#include <string_view>

#include "core/expect.h"
#include "grammar/json_string.h"

namespace fathom::grammar {
namespace {

// Longer tokens are left out: their counts would not fit an Entry.
constexpr size_t kLongestToken = 254;

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

ByteTrie ByteTrie::build(std::vector<std::pair<std::string, Entry>> strings) {
  std::stable_sort(strings.begin(), strings.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  ByteTrie trie;
  trie.nodes.push_back({0, 0, 0, 0});
  std::vector<uint32_t> path = {0};  // nodes from the root to the last string's node
  const auto leave           = [&](size_t depth) {
    for (; path.size() > depth + 1; path.pop_back())
      trie.nodes[path.back()].subtree_end = static_cast<uint32_t>(trie.nodes.size());
  };
  std::string_view last;
  for (const auto& [bytes, entry] : strings) {
    leave(common_prefix(last, bytes));
    while (path.size() <= bytes.size()) {
      const auto depth = static_cast<uint16_t>(path.size());
      path.push_back(static_cast<uint32_t>(trie.nodes.size()));
      trie.nodes.push_back(
          {0, static_cast<uint32_t>(trie.entries.size()), depth, static_cast<uint8_t>(bytes[depth - 1u])});
    }
    trie.entries.push_back(entry);
    last = bytes;
  }
  leave(0);
  trie.nodes[0].subtree_end = static_cast<uint32_t>(trie.nodes.size());
  trie.nodes.push_back({0, static_cast<uint32_t>(trie.entries.size()), 0, 0});
  return trie;
}

VocabularyTrie::VocabularyTrie(const model::Tokenizer& tokenizer, int64_t vocab_size)
    : tokenizer(&tokenizer),
      vocab_size(vocab_size),
      characters_in_string(static_cast<size_t>(vocab_size), kLeavesString),
      is_text(static_cast<size_t>(vocab_size)) {
  FATHOM_EXPECT(vocab_size >= tokenizer.vocab_size(), "logits for fewer ids than the tokenizer has");
  std::vector<std::pair<std::string, ByteTrie::Entry>> strings, closing;
  for (model::TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.bytes(id);
    if (bytes.empty() || tokenizer.is_special(id)) continue;
    is_text[static_cast<size_t>(id)] = 1;
    if (bytes.size() > kLongestToken) continue;
    strings.push_back({std::string(bytes), {id, 0}});

    StringState state  = StringState::body;
    uint8_t characters = 0;
    size_t at          = 0;
    for (; at < bytes.size() && state < StringState::closed; ++at) {
      const StringState next = next_string_state(state, static_cast<uint8_t>(bytes[at]));
      characters =
          static_cast<uint8_t>(characters + (state == StringState::body && next < StringState::closed));
      state = next;
    }
    if (state == StringState::closed)
      closing.push_back({std::string(bytes.substr(at)), {id, characters}});
    else if (state != StringState::invalid)
      characters_in_string[static_cast<size_t>(id)] = characters;
  }
  tokens   = ByteTrie::build(std::move(strings));
  closings = ByteTrie::build(std::move(closing));
}

}  // namespace fathom::grammar
