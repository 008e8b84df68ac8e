#include "model/harmony.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/utf8.h"

namespace fathom::model {
namespace {

// A header has some dozen tokens. Longer text without <|message|> is treated as content, so that it is not
// withheld from a stream forever.
constexpr int64_t kLongestHeader = 64;

bool is_channel(std::string_view name) {
  return name == "analysis" || name == "commentary" || name == "final";
}

std::vector<std::string_view> words(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::vector<std::string_view> found;
  for (size_t first = text.find_first_not_of(kSpace); first != std::string_view::npos;) {
    const size_t last = std::min(text.find_first_of(kSpace, first), text.size());
    found.push_back(text.substr(first, last - first));
    first = text.find_first_not_of(kSpace, last);
  }
  return found;
}

}  // namespace

Result<HarmonyTokens> HarmonyTokens::find(const Tokenizer& tokenizer) {
  HarmonyTokens tokens;
  for (const auto& [name, id] :
       {std::pair{"<|start|>", &tokens.start}, std::pair{"<|end|>", &tokens.end},
        std::pair{"<|message|>", &tokens.message}, std::pair{"<|channel|>", &tokens.channel},
        std::pair{"<|constrain|>", &tokens.constrain}, std::pair{"<|return|>", &tokens.return_},
        std::pair{"<|call|>", &tokens.call}, std::pair{"<|endoftext|>", &tokens.endoftext}}) {
    const auto found = tokenizer.added_token(name);
    if (!found)
      return Error{
          fmt::format("the tokenizer has no {} among its added_tokens: use that of a gpt-oss model", name)};
    *id = *found;
  }
  return tokens;
}

std::string harmony_system_text(std::string_view reasoning_effort, std::string_view current_date,
                                bool has_functions) {
  std::string text =
      "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n";
  if (!current_date.empty()) text += fmt::format("Current date: {}\n", current_date);
  text += fmt::format("\nReasoning: {}\n\n", reasoning_effort);
  text += "# Valid channels: analysis, commentary, final. Channel must be included for every message.";
  if (has_functions) text += "\nCalls to these tools must go to the commentary channel: 'functions'.";
  return text;
}

Result<std::vector<TokenId>> render_harmony(const Tokenizer& tokenizer, const HarmonyTokens& tokens,
                                            std::span<const HarmonyMessage> messages) {
  const auto is_final  = [](const HarmonyMessage& message) { return message.channel == "final"; };
  const auto assistant = std::find_if(messages.rbegin(), messages.rend(),
                                      [](const HarmonyMessage& m) { return m.role == "assistant"; });
  auto first_final     = messages.begin();  // analysis messages before it are dropped
  if (assistant != messages.rend() && is_final(*assistant))
    first_final = std::find_if(messages.begin(), messages.end(), is_final);

  std::vector<TokenId> ids;
  Status status   = Ok{};
  const auto text = [&](std::string_view text) {
    const auto encoded = tokenizer.encode(text, AddedTokens::as_text);
    if (encoded)
      ids.insert(ids.end(), encoded->begin(), encoded->end());
    else
      status = encoded.error();
  };
  for (auto message = messages.begin(); message != messages.end(); ++message) {
    if (message < first_final && message->channel == "analysis") continue;
    ids.push_back(tokens.start);
    text(message->role);
    if (!message->recipient.empty()) text(" to=" + message->recipient);
    if (!message->channel.empty()) {
      ids.push_back(tokens.channel);
      text(message->channel);
    }
    if (!message->content_type.empty()) {
      text(" ");
      ids.push_back(tokens.constrain);
      text(message->content_type);
    }
    ids.push_back(tokens.message);
    text(message->content);
    ids.push_back(message->role == "assistant" && !message->recipient.empty() ? tokens.call : tokens.end);
    if (!status) return status.error();
  }
  ids.push_back(tokens.start);
  text("assistant");
  if (!status) return status.error();
  return ids;
}

HarmonyParser::HarmonyParser(const Tokenizer& tokenizer, const HarmonyTokens& tokens)
    : tokenizer_(&tokenizer), tokens_(tokens), detokenizer_(tokenizer) {
  begin_header("assistant");
}

void HarmonyParser::begin_header(std::string role) {
  state_         = State::header;
  section_       = kRole;
  header_tokens_ = 0;
  implied_role_  = std::move(role);
  header_.fill("");
}

// Ends the header and begins a message.
void HarmonyParser::begin_content() {
  HarmonyMessage message{.role = implied_role_};
  for (int section = 0; section < kSections; ++section)
    for (const std::string_view word : words(header_[section])) {
      const size_t to             = word.find("to=");  // sometimes without a space after the channel
      const std::string_view name = word.substr(0, to);
      if (to != std::string_view::npos) message.recipient = well_formed(word.substr(to + 3));
      if (name.empty()) continue;
      std::string& field = section == kRole && message.role.empty()         ? message.role
                           : section == kChannel && message.channel.empty() ? message.channel
                                                                            : message.content_type;
      if (field.empty()) field = well_formed(name);
    }
  if (message.role.empty()) message.role = "assistant";
  if (!is_channel(message.channel)) message.channel = message.recipient.empty() ? "final" : "commentary";
  messages_.push_back(std::move(message));
  state_ = State::content;
}

// Treats the header's text as content. A channel name alone is a truncated header, not content.
std::string HarmonyParser::header_as_content() {
  std::string bytes = header_[kRole] + header_[kChannel] + header_[kConstrain];
  for (const std::string_view name : {"analysis", "commentary", "final"})
    if (std::string_view(header_[kChannel]).starts_with(name))
      bytes = header_[kRole] + header_[kChannel].substr(name.size()) + header_[kConstrain];
  const bool is_text = !words(bytes).empty() && words(bytes).front().substr(0, 3) != "to=" &&
                       !(implied_role_.empty() && words(bytes).size() == 1 && bytes == "assistant");
  begin_header("assistant");
  if (!is_text) {
    state_ = State::expect_start;
    return "";
  }
  begin_content();
  messages_.back().content = well_formed(bytes);
  return messages_.back().content;
}

std::string HarmonyParser::end_content() {
  std::string text = detokenizer_.finish();
  messages_.back().content += text;
  state_ = State::expect_start;
  return text;
}

std::string HarmonyParser::add(TokenId id) {
  const bool ends =
      id == tokens_.end || id == tokens_.return_ || id == tokens_.call || id == tokens_.endoftext;
  if (ends || id == tokens_.start) {
    std::string text = finish();
    if (id == tokens_.start) begin_header("");
    return text;
  }
  if (id == tokens_.channel) {  // in or after content: a message whose <|start|>assistant is missing
    std::string text;
    if (state_ == State::content) text = end_content();
    if (state_ == State::expect_start) begin_header("assistant");
    section_ = kChannel;
    return text;
  }
  if (id == tokens_.message) {
    if (state_ == State::expect_start) begin_header("assistant");
    if (state_ == State::header) begin_content();
    return "";
  }
  if (id == tokens_.constrain) {
    if (state_ == State::header) section_ = kConstrain;
    return "";
  }
  if (state_ == State::expect_start) begin_header("");
  if (state_ == State::header) {
    if (!tokenizer_->is_special(id)) header_[section_] += tokenizer_->bytes(id);
    const bool too_long = ++header_tokens_ > kLongestHeader && incomplete_suffix(header_[section_]) == 0;
    return too_long ? header_as_content() : "";
  }
  std::string text = detokenizer_.add(id);
  messages_.back().content += text;
  return text;
}

std::string HarmonyParser::finish() {
  if (state_ == State::content) return end_content();
  if (state_ == State::header) {
    std::string text = header_as_content();
    state_           = State::expect_start;
    return text;
  }
  return "";
}

}  // namespace fathom::model
