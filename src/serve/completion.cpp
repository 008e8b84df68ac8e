#include "serve/completion.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "core/utf8.h"
#include "http/sse.h"
#include "serve/logprobs.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

class CompletionBody : public ResponseWriter {
 public:
  CompletionBody(const model::Tokenizer& tokenizer, CompletionOptions options)
      : tokenizer_(tokenizer), options_(std::move(options)), choices_(options_.echo.size()) {}

  std::string begin() override { return ""; }

  std::string add(size_t index, std::span<const OutputDelta> deltas, const ChoiceFinish* finish,
                  const Usage&) override {
    Choice& choice = choices_[index];
    for (const OutputDelta& delta : deltas) {
      choice.text += delta.text;
      choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
    }
    if (finish) choice.finish = *finish;
    return "";
  }

  std::string done(const Usage& usage) override {
    Json reply    = envelope_json(options_.envelope, kTextCompletion);
    Json& choices = reply["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i)
      choices.push_back(completion_choice_json(tokenizer_, options_, i, options_.echo[i] + choices_[i].text,
                                               choices_[i].tokens, &choices_[i].finish));
    reply["usage"]   = usage_json(usage);
    reply["timings"] = timings_json(usage);
    set_weight_version(reply, usage);
    return http::text_of(reply);
  }

  std::string fail(const ApiError& error) override { return http::text_of(error_json(error)); }

 private:
  struct Choice {
    std::string text;
    std::vector<ContentToken> tokens;
    ChoiceFinish finish;
  };

  const model::Tokenizer& tokenizer_;
  const CompletionOptions options_;
  std::vector<Choice> choices_;
};

}  // namespace

Json completion_choice_json(const model::Tokenizer& tokenizer, const CompletionOptions& options, size_t index,
                            std::string_view text, std::span<const ContentToken> tokens,
                            const ChoiceFinish* finish) {
  Json choice             = {{"index", index}, {"text", text}, {"logprobs", nullptr}};
  choice["finish_reason"] = finish ? Json(name_of(finish->reason)) : Json(nullptr);
  choice["stop_reason"]   = finish ? stop_reason_json(finish->stop) : Json(nullptr);
  if (!options.logprobs) return choice;
  Json texts = Json::array(), logprobs = Json::array(), top = Json::array(), offsets = Json::array();
  for (const auto& [sampled, offset] : tokens) {
    const auto name = [&](model::TokenId id) { return well_formed(tokenizer.bytes(id)); };
    texts.push_back(name(sampled.id));
    logprobs.push_back(finite_logprob(sampled.logprob.value()));
    offsets.push_back(offset + characters(options.echo[index]));
    // Of two tokens with the same text the likelier one counts. The chosen token is always present.
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

std::unique_ptr<ResponseWriter> completion_body(const model::Tokenizer& tokenizer,
                                                CompletionOptions options) {
  return std::make_unique<CompletionBody>(tokenizer, std::move(options));
}

}  // namespace fathom::serve
