#include "serve/answer_text.h"

#include <algorithm>
#include <utility>

namespace fathom::serve {
namespace {

constexpr std::string_view kFunctions = "functions.";

bool contains(const std::vector<model::TokenId>& ids, model::TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

int64_t characters(std::string_view text) {  // bytes that continue none
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; });
}

AnswerText::AnswerText(const model::Tokenizer& tokenizer, Options options)
    : tokenizer_(&tokenizer),
      options_(std::move(options)),
      detokenizer_(tokenizer, options_.skip_special_tokens),
      stops_(options_.stop_strings, options_.keep_stop) {
  if (options_.harmony) parser_.emplace(tokenizer, *options_.harmony);
}

void AnswerText::add(const engine::Sampled& sampled, std::vector<Piece>& pieces) {
  if (stopped()) return;
  ++tokens_;
  const bool eos = contains(options_.eos_ids, sampled.id);
  if (!eos && contains(options_.stop_token_ids, sampled.id)) stop_token_ = sampled.id;
  if ((eos || stop_token_) && !options_.keep_stop) return;
  std::string text = parser_ ? parsed(parser_->add(sampled.id), pieces) : detokenizer_.add(sampled.id);
  if (kind_ == Piece::Kind::reasoning) ++reasoning_tokens_;
  const bool hidden = tokenizer_->is_special(sampled.id) && (parser_ || options_.skip_special_tokens);
  if (sampled.logprob && !hidden) textless_.push_back(sampled);
  place(std::move(text), pieces);
}

void AnswerText::finish(std::vector<Piece>& pieces) {
  if (!stopped()) {
    place(parser_ ? parsed(parser_->finish(), pieces) : detokenizer_.finish(), pieces);
    show_content(stops_.finish(), pieces);
  }
}

StopReason AnswerText::stop_reason() const {
  if (stopped()) return options_.stop_strings[*stops_.hit()];
  if (stop_token_) return *stop_token_;
  return std::monostate();
}

// Sees to a message that has begun; `text` is its.
std::string AnswerText::parsed(std::string text, std::vector<Piece>& pieces) {
  const auto& messages = parser_->messages();
  if (messages.size() == messages_) return text;
  show_content(stops_.finish(), pieces);  // of the message before
  messages_                            = messages.size();
  const model::HarmonyMessage& message = messages.back();
  const bool call                      = options_.tool_calls && message.recipient.starts_with(kFunctions);
  kind_                                = call                            ? Piece::Kind::arguments
                                         : message.channel == "analysis" ? Piece::Kind::reasoning
                                                                         : Piece::Kind::content;
  begins_                              = true;
  if (text.empty()) textless_.clear();  // they were a header indeed
  if (!call) return text;
  ++calls_;
  pieces.push_back(
      {.kind = Piece::Kind::call, .begins = true, .text = message.recipient.substr(kFunctions.size())});
  begins_ = false;
  return text;
}

void AnswerText::place(std::string text, std::vector<Piece>& pieces) {
  if (text.empty()) return;
  if (kind_ != Piece::Kind::content) {
    textless_.clear();
    return show(std::move(text), pieces);
  }
  for (engine::Sampled& sampled : textless_)
    waiting_.push_back({.sampled = std::move(sampled), .offset = made_});
  textless_.clear();
  made_ += characters(text);
  show_content(tokens_ > options_.min_tokens ? stops_.add(text) : std::move(text), pieces);
}

void AnswerText::show_content(std::string text, std::vector<Piece>& pieces) {
  if (text.empty()) return;
  shown_ += characters(text);
  show(std::move(text), pieces);
  const auto shown = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const ShownToken& token) { return token.offset >= shown_; });
  auto& tokens     = pieces.back().tokens;
  tokens.insert(tokens.end(), std::make_move_iterator(waiting_.begin()), std::make_move_iterator(shown));
  waiting_.erase(waiting_.begin(), shown);
}

void AnswerText::show(std::string text, std::vector<Piece>& pieces) {
  if (begins_ || pieces.empty() || pieces.back().kind != kind_)
    pieces.push_back({.kind = kind_, .begins = begins_, .text = std::move(text)});
  else
    pieces.back().text += text;
  begins_ = false;
}

}  // namespace fathom::serve
