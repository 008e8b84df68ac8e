#include "serve/chat_completion_stream.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "http/sse.h"
#include "serve/logprobs.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kChunk = "chat.completion.chunk";

class ChatCompletionStream : public ResponseWriter {
 public:
  ChatCompletionStream(const model::Tokenizer& tokenizer, ChatCompletionOptions options)
      : tokenizer_(tokenizer), options_(std::move(options)), choices_(options_.choices) {}

  std::string begin() override {
    std::string events;
    for (size_t i = 0; i < choices_.size(); ++i)
      events += http::data_event(chunk_json(i, {{"role", "assistant"}, {"content", ""}}));
    return events;
  }

  std::string add(size_t index, std::span<const OutputDelta> deltas, const ChoiceFinish* finish,
                  const Usage& usage) override {
    std::vector<Json> chunks;
    for (const OutputDelta& delta : deltas) {
      if (delta.kind == OutputDelta::Kind::reasoning && !options_.include_reasoning) continue;
      chunks.push_back(chunk_json(index, delta_json(choices_[index], delta)));
      if (options_.logprobs && delta.kind == OutputDelta::Kind::content)
        chunks.back()["choices"][0]["logprobs"] = {{"content", logprobs_json(tokenizer_, delta.tokens)}};
    }
    if (finish) {
      // The last text and the finish reason share a chunk, so that a client that times chunks sees one for
      // each step.
      if (chunks.empty()) chunks.push_back(chunk_json(index, Json::object()));
      Json& choice            = chunks.back()["choices"][0];
      choice["finish_reason"] = chat_finish_reason(*finish, choices_[index].calls > 0);
      choice["stop_reason"]   = stop_reason_json(finish->stop);
      if (usage.choices == static_cast<int64_t>(options_.choices))
        chunks.back()["timings"] = timings_json(usage);
    }
    std::string events;
    for (Json& chunk : chunks) {
      if (std::exchange(told_version_, usage.weight_version) != usage.weight_version)
        set_weight_version(chunk, usage);
      if (options_.continuous_usage_stats) chunk["usage"] = usage_json(usage);
      events += http::data_event(chunk);
    }
    return events;
  }

  std::string done(const Usage& usage) override {
    return last_events(options_.envelope, kChunk, options_.include_usage, usage);
  }

  std::string fail(const ApiError& error) override { return error_events(error); }

 private:
  struct Choice {
    bool has_reasoning = false, has_content = false;
    int64_t calls = 0;
  };

  Json chunk_json(size_t index, Json delta) const {
    Json chunk       = envelope_json(options_.envelope, kChunk);
    chunk["choices"] = Json::array({Json{
        {"index", index}, {"delta", std::move(delta)}, {"logprobs", nullptr}, {"finish_reason", nullptr}}});
    return chunk;
  }

  static Json delta_json(Choice& choice, const OutputDelta& delta) {
    switch (delta.kind) {
      case OutputDelta::Kind::reasoning: {
        const std::string text = separated_text(delta, !std::exchange(choice.has_reasoning, true));
        return {{"reasoning", text}, {"reasoning_content", text}};
      }
      case OutputDelta::Kind::content:
        return {{"content", separated_text(delta, !std::exchange(choice.has_content, true))}};
      case OutputDelta::Kind::tool_call: {
        Json call = {{"index", choice.calls++}};
        call.update(tool_call_json(delta.text));
        return {{"tool_calls", Json::array({std::move(call)})}};
      }
      case OutputDelta::Kind::arguments:
        break;
    }
    return {{"tool_calls",
             Json::array({Json{{"index", choice.calls - 1}, {"function", {{"arguments", delta.text}}}}})}};
  }

  const model::Tokenizer& tokenizer_;
  const ChatCompletionOptions options_;
  std::vector<Choice> choices_;
  std::string told_version_;
};

}  // namespace

std::unique_ptr<ResponseWriter> chat_completion_stream(const model::Tokenizer& tokenizer,
                                                       ChatCompletionOptions options) {
  return std::make_unique<ChatCompletionStream>(tokenizer, std::move(options));
}

}  // namespace fathom::serve
