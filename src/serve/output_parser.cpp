#include "serve/output_parser.h"

#include <algorithm>
#include <utility>

namespace fathom::serve {
namespace {

constexpr std::string_view kFunctions = "functions.";

bool contains(const std::vector<model::TokenId>& ids, model::TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

int64_t characters(std::string_view text) {  // counts the bytes that start a character
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; });
}

OutputParser::OutputParser(const model::Tokenizer& tokenizer, Options options)
    : tokenizer_(&tokenizer),
      options_(std::move(options)),
      detokenizer_(tokenizer, options_.skip_special_tokens),
      stops_(options_.stop_strings, options_.keep_stop) {
  if (options_.harmony) harmony_.emplace(tokenizer, *options_.harmony);
}

void OutputParser::add(const engine::Sampled& sampled, std::vector<OutputDelta>& deltas) {
  if (stopped()) return;
  ++tokens_;
  const bool eos = contains(options_.eos_ids, sampled.id);
  if (!eos && contains(options_.stop_token_ids, sampled.id)) stop_token_ = sampled.id;
  if ((eos || stop_token_) && !options_.keep_stop) return;
  std::string text =
      harmony_ ? begin_message(harmony_->add(sampled.id), deltas) : detokenizer_.add(sampled.id);
  if (kind_ == OutputDelta::Kind::reasoning) ++reasoning_tokens_;
  const bool hidden = tokenizer_->is_special(sampled.id) && (harmony_ || options_.skip_special_tokens);
  if (sampled.logprob && !hidden) textless_.push_back(sampled);
  route(std::move(text), deltas);
}

void OutputParser::finish(std::vector<OutputDelta>& deltas) {
  if (!stopped()) {
    route(harmony_ ? begin_message(harmony_->finish(), deltas) : detokenizer_.finish(), deltas);
    append_content(stops_.finish(), deltas);
  }
}

StopReason OutputParser::stop_reason() const {
  if (stopped()) return options_.stop_strings[*stops_.hit()];
  if (stop_token_) return *stop_token_;
  return std::monostate();
}

// Begins a message where harmony's parser has begun one. Returns `text`, which belongs to that message.
std::string OutputParser::begin_message(std::string text, std::vector<OutputDelta>& deltas) {
  const auto& messages = harmony_->messages();
  if (messages.size() == messages_) return text;
  append_content(stops_.finish(), deltas);  // the rest of the message before
  messages_                            = messages.size();
  const model::HarmonyMessage& message = messages.back();
  const bool call                      = options_.tool_calls && message.recipient.starts_with(kFunctions);
  kind_                                = call                            ? OutputDelta::Kind::arguments
                                         : message.channel == "analysis" ? OutputDelta::Kind::reasoning
                                                                         : OutputDelta::Kind::content;
  begins_                              = true;
  if (text.empty()) textless_.clear();  // those tokens were the header
  if (!call) return text;
  ++calls_;
  deltas.push_back({.kind   = OutputDelta::Kind::tool_call,
                    .begins = true,
                    .text   = message.recipient.substr(kFunctions.size())});
  begins_ = false;
  return text;
}

void OutputParser::route(std::string text, std::vector<OutputDelta>& deltas) {
  if (text.empty()) return;
  if (kind_ != OutputDelta::Kind::content) {
    textless_.clear();
    return append(std::move(text), deltas);
  }
  for (engine::Sampled& sampled : textless_)
    waiting_.push_back({.sampled = std::move(sampled), .offset = decoded_});
  textless_.clear();
  decoded_ += characters(text);
  append_content(tokens_ > options_.min_tokens ? stops_.add(text) : std::move(text), deltas);
}

void OutputParser::append_content(std::string text, std::vector<OutputDelta>& deltas) {
  if (text.empty()) return;
  shown_ += characters(text);
  append(std::move(text), deltas);
  const auto shown = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const ContentToken& token) { return token.offset >= shown_; });
  auto& tokens     = deltas.back().tokens;
  tokens.insert(tokens.end(), std::make_move_iterator(waiting_.begin()), std::make_move_iterator(shown));
  waiting_.erase(waiting_.begin(), shown);
}

void OutputParser::append(std::string text, std::vector<OutputDelta>& deltas) {
  if (begins_ || deltas.empty() || deltas.back().kind != kind_)
    deltas.push_back({.kind = kind_, .begins = begins_, .text = std::move(text)});
  else
    deltas.back().text += text;
  begins_ = false;
}

}  // namespace fathom::serve
