#include "serve/chat_completion.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "http/sse.h"
#include "serve/logprobs.h"
#include "serve/random_id.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

class ChatCompletionBody : public ResponseWriter {
 public:
  ChatCompletionBody(const model::Tokenizer& tokenizer, ChatCompletionOptions options)
      : tokenizer_(tokenizer), options_(std::move(options)), choices_(options_.choices) {}

  std::string begin() override { return ""; }

  std::string add(size_t index, std::span<const OutputDelta> deltas, const ChoiceFinish* finish,
                  const Usage&) override {
    Choice& choice = choices_[index];
    for (const OutputDelta& delta : deltas) switch (delta.kind) {
        case OutputDelta::Kind::reasoning:
          choice.reasoning += separated_text(delta, choice.reasoning.empty());
          break;
        case OutputDelta::Kind::content:
          choice.content += separated_text(delta, choice.content.empty());
          choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
          break;
        case OutputDelta::Kind::tool_call:
          choice.calls.push_back({.name = delta.text});
          break;
        case OutputDelta::Kind::arguments:
          choice.calls.back().arguments += delta.text;
          break;
      }
    if (finish) choice.finish = *finish;
    return "";
  }

  std::string done(const Usage& usage) override {
    Json reply    = envelope_json(options_.envelope, "chat.completion");
    Json& choices = reply["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) choices.push_back(choice_json(i));
    reply["usage"]   = usage_json(usage);
    reply["timings"] = timings_json(usage);
    set_weight_version(reply, usage);
    return http::text_of(reply);
  }

  std::string fail(const ApiError& error) override { return http::text_of(error_json(error)); }

 private:
  struct Call {
    std::string name, arguments;
  };
  struct Choice {
    std::string reasoning, content;
    std::vector<ContentToken> tokens;
    std::vector<Call> calls;
    ChoiceFinish finish;
  };

  Json choice_json(size_t index) const {
    const Choice& choice = choices_[index];
    Json message         = {{"role", "assistant"}, {"content", choice.content}};
    if (options_.include_reasoning && !choice.reasoning.empty()) {
      message["reasoning"]         = choice.reasoning;
      message["reasoning_content"] = choice.reasoning;
    }
    if (!choice.calls.empty()) {
      if (choice.content.empty()) message["content"] = nullptr;
      Json& calls = message["tool_calls"] = Json::array();
      for (const Call& call : choice.calls) {
        calls.push_back(tool_call_json(call.name));
        calls.back()["function"]["arguments"] = call.arguments;
      }
    }
    Json logprobs = nullptr;
    if (options_.logprobs) logprobs = {{"content", logprobs_json(tokenizer_, choice.tokens)}};
    return {{"index", index},
            {"message", std::move(message)},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", chat_finish_reason(choice.finish, !choice.calls.empty())},
            {"stop_reason", stop_reason_json(choice.finish.stop)}};
  }

  const model::Tokenizer& tokenizer_;
  const ChatCompletionOptions options_;
  std::vector<Choice> choices_;
};

}  // namespace

std::string_view chat_finish_reason(const ChoiceFinish& finish, bool called_tool) {
  const bool by_itself =
      finish.reason == engine::FinishReason::stop && std::holds_alternative<std::monostate>(finish.stop);
  return called_tool && by_itself ? "tool_calls" : name_of(finish.reason);
}

Json tool_call_json(std::string_view name) {
  return {{"id", new_id("call_")}, {"type", "function"}, {"function", {{"name", name}, {"arguments", ""}}}};
}

std::string separated_text(const OutputDelta& delta, bool first) {
  return (delta.begins && !first ? "\n" : "") + delta.text;
}

std::unique_ptr<ResponseWriter> chat_completion_body(const model::Tokenizer& tokenizer,
                                                     ChatCompletionOptions options) {
  return std::make_unique<ChatCompletionBody>(tokenizer, std::move(options));
}

}  // namespace fathom::serve
