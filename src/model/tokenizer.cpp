#include "model/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/utf8.h"

namespace fathom::model {

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream json;
  if (!(json << file.rdbuf()))  // also fails for an empty file or a folder
    return Error{fmt::format("{} cannot be read ({}): give the path of a tokenizer.json", path,
                             errno ? std::strerror(errno) : "it is empty")};
  return parse(std::move(json).str(), path);
}

Result<Tokenizer> Tokenizer::parse(std::string_view json, const std::string& path) {
  auto data = parse_tokenizer_json(json, path);
  if (!data) return data.error();
  auto pretokenizer = Pretokenizer::compile(data->pattern);
  if (!pretokenizer) return Error{fmt::format("{}: pre_tokenizer: {}", path, pretokenizer.error().message)};
  return Tokenizer(*std::move(data), *std::move(pretokenizer));
}

Tokenizer::Tokenizer(TokenizerData data, Pretokenizer pretokenizer)
    : data_(std::move(data)), pretokenizer_(std::move(pretokenizer)), special_(data_.bytes.size()) {
  std::sort(data_.added.begin(), data_.added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  for (const AddedToken& token : data_.added)
    if (token.special) special_[token.id] = true;
  if (!data_.ignore_merges) return;
  pieces_.reserve(data_.bytes.size());
  // Without special tokens: text that spells one out must not become it.
  for (TokenId id = 0; id < vocab_size(); ++id)
    if (!data_.bytes[id].empty() && !special_[id]) pieces_.emplace(data_.bytes[id], id);
}

int64_t Tokenizer::added_at(std::string_view text) const {
  // The tokens that match the text so far are a range of the sorted list. Each byte narrows the range; a
  // token that ends here comes first in it.
  auto first = data_.added.begin(), last = data_.added.end();
  int64_t longest = -1;
  for (size_t depth = 0; first != last; ++depth) {
    if (first->content.size() == depth) {
      longest = first - data_.added.begin();
      ++first;
    }
    if (depth == text.size()) break;
    const auto byte = static_cast<unsigned char>(text[depth]);
    const auto at   = [depth](const AddedToken& token) {
      return static_cast<unsigned char>(token.content[depth]);
    };
    first = std::partition_point(first, last, [&](const AddedToken& token) { return at(token) < byte; });
    last  = std::partition_point(first, last, [&](const AddedToken& token) { return at(token) == byte; });
  }
  return longest;
}

Status Tokenizer::encode_text(std::string_view text, BpeMerger& merger, std::vector<TokenId>& ids) const {
  const auto pieces = pretokenizer_.split(text);
  if (!pieces) return pieces.error();
  std::vector<TokenId> bytes;
  for (const std::string_view piece : *pieces) {
    if (const auto whole = pieces_.find(piece); whole != pieces_.end()) {
      ids.push_back(whole->second);
      continue;
    }
    bytes.clear();
    for (const char byte : piece) bytes.push_back(data_.byte_ids[static_cast<unsigned char>(byte)]);
    merger.merge(bytes, ids);
  }
  return Ok{};
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, AddedTokens added) const {
  std::string replaced;
  if (!is_well_formed(text)) text = replaced = well_formed(text);
  if (text.size() >= static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    return Error{fmt::format("a text of {} bytes is too long to encode: cut it below 2 GiB", text.size())};

  std::vector<TokenId> ids;
  BpeMerger merger(data_.merges);
  size_t start = 0;  // start of the text after the last added token
  if (added == AddedTokens::recognised)
    for (size_t i = 0; i < text.size();) {
      const int64_t found = added_at(text.substr(i));
      if (found < 0) {
        ++i;
        continue;
      }
      if (auto status = encode_text(text.substr(start, i - start), merger, ids); !status)
        return status.error();
      ids.push_back(data_.added[found].id);
      start = i += data_.added[found].content.size();
    }
  if (auto status = encode_text(text.substr(start), merger, ids); !status) return status.error();
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::string joined;
  for (const TokenId id : ids)
    if (!skip_special_tokens || !is_special(id)) joined += bytes(id);
  return well_formed(joined);
}

std::string_view Tokenizer::bytes(TokenId id) const {
  return id < 0 || id >= vocab_size() ? std::string_view() : data_.bytes[id];
}

bool Tokenizer::is_special(TokenId id) const { return id >= 0 && id < vocab_size() && special_[id]; }

std::optional<TokenId> Tokenizer::added_token(std::string_view content) const {
  const int64_t found = added_at(content);
  if (found < 0 || data_.added[found].content != content) return std::nullopt;
  return data_.added[found].id;
}

std::string Detokenizer::add(TokenId id) {
  if (skip_special_tokens_ && tokenizer_->is_special(id)) return "";
  held_ += tokenizer_->bytes(id);
  const size_t whole = held_.size() - incomplete_suffix(held_);
  std::string text   = well_formed(std::string_view(held_).substr(0, whole));
  held_.erase(0, whole);
  return text;
}

std::string Detokenizer::finish() {
  std::string text = well_formed(held_);
  held_.clear();
  return text;
}

}  // namespace fathom::model
