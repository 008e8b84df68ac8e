#include "serve/completion_reply.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "model/utf8.h"
#include "serve/sse.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kObject = "text_completion";  // body and chunk alike

class Completion : public Reply {
 public:
  Completion(const model::Tokenizer& tokenizer, CompletionReplyOptions options)
      : tokenizer_(tokenizer), options_(std::move(options)) {}

 protected:
  Json choice_json(size_t index, std::string_view text, std::span<const ShownToken> tokens,
                   const ChoiceEnd* end) const {
    Json choice             = {{"index", index}, {"text", text}, {"logprobs", nullptr}};
    choice["finish_reason"] = end ? Json(name_of(end->reason)) : Json(nullptr);
    choice["stop_reason"]   = end ? stop_reason_json(end->stop) : Json(nullptr);
    if (!options_.logprobs) return choice;
    Json texts = Json::array(), logprobs = Json::array(), top = Json::array(), offsets = Json::array();
    for (const auto& [sampled, offset] : tokens) {
      const auto name = [&](model::TokenId id) { return model::well_formed(tokenizer_.bytes(id)); };
      texts.push_back(name(sampled.id));
      logprobs.push_back(finite_logprob(sampled.logprob.value()));
      offsets.push_back(offset + characters(options_.echo[index]));
      // Of two tokens that read the same the likelier one counts; the one chosen is always there.
      Json likely = Json::object();
      for (const auto& [id, logprob] : sampled.top) likely.emplace(name(id), finite_logprob(logprob));
      likely.emplace(name(sampled.id), finite_logprob(*sampled.logprob));
      top.push_back(std::move(likely));
    }
    choice["logprobs"] = {{"tokens", std::move(texts)},
                          {"token_logprobs", std::move(logprobs)},
                          {"top_logprobs", std::move(top)},
                          {"text_offset", std::move(offsets)}};
    return choice;
  }

  const model::Tokenizer& tokenizer_;
  const CompletionReplyOptions options_;
};

class CompletionBody : public Completion {
 public:
  CompletionBody(const model::Tokenizer& tokenizer, CompletionReplyOptions options)
      : Completion(tokenizer, std::move(options)), choices_(options_.echo.size()) {}

  std::string begin() override { return ""; }

  std::string add(size_t index, std::span<const Piece> pieces, const ChoiceEnd* end, const Usage&) override {
    Choice& choice = choices_[index];
    for (const Piece& piece : pieces) {
      choice.text += piece.text;
      choice.tokens.insert(choice.tokens.end(), piece.tokens.begin(), piece.tokens.end());
    }
    if (end) choice.end = *end;
    return "";
  }

  std::string done(const Usage& usage) override {
    Json reply    = envelope(options_.head, kObject);
    Json& choices = reply["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i)
      choices.push_back(
          choice_json(i, options_.echo[i] + choices_[i].text, choices_[i].tokens, &choices_[i].end));
    reply["usage"]   = usage_json(usage);
    reply["timings"] = timings_json(usage);
    return text_of(reply);
  }

  std::string fail(const ApiError& error) override { return text_of(error_json(error)); }

 private:
  struct Choice {
    std::string text;
    std::vector<ShownToken> tokens;
    ChoiceEnd end;
  };

  std::vector<Choice> choices_;
};

class CompletionStream : public Completion {
 public:
  using Completion::Completion;

  std::string begin() override {
    std::string events;
    for (size_t i = 0; i < options_.echo.size(); ++i)
      if (!options_.echo[i].empty()) events += event(choice_json(i, options_.echo[i], {}, nullptr), Usage());
    return events;
  }

  std::string add(size_t index, std::span<const Piece> pieces, const ChoiceEnd* end,
                  const Usage& usage) override {
    std::string text;
    std::vector<ShownToken> tokens;
    for (const Piece& piece : pieces) {
      text += piece.text;
      tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
    }
    return event(choice_json(index, text, tokens, end), usage);
  }

  std::string done(const Usage& usage) override {
    return end_of_stream(options_.head, kObject, options_.include_usage, usage);
  }

  std::string fail(const ApiError& error) override { return failure_of_stream(error); }

 private:
  std::string event(Json choice, const Usage& usage) const {
    Json chunk       = envelope(options_.head, kObject);
    chunk["choices"] = Json::array({std::move(choice)});
    if (options_.continuous_usage_stats) chunk["usage"] = usage_json(usage);
    if (usage.choices == static_cast<int64_t>(options_.echo.size())) chunk["timings"] = timings_json(usage);
    return data_event(chunk);
  }
};

}  // namespace

std::unique_ptr<Reply> completion_body(const model::Tokenizer& tokenizer, CompletionReplyOptions options) {
  return std::make_unique<CompletionBody>(tokenizer, std::move(options));
}

std::unique_ptr<Reply> completion_stream(const model::Tokenizer& tokenizer, CompletionReplyOptions options) {
  return std::make_unique<CompletionStream>(tokenizer, std::move(options));
}

}  // namespace fathom::serve
