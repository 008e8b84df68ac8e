#include "serve/chat_reply.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "serve/sse.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kChunk = "chat.completion.chunk";

// A model that called a tool and stopped by itself awaits the result.
std::string_view finish_reason(const ChoiceEnd& end, bool called) {
  const bool by_itself =
      end.reason == engine::FinishReason::stop && std::holds_alternative<std::monostate>(end.stop);
  return called && by_itself ? "tool_calls" : name_of(end.reason);
}

Json call_json(std::string_view name) {
  return {{"id", new_id("call_")}, {"type", "function"}, {"function", {{"name", name}, {"arguments", ""}}}};
}

// Between two messages of the same kind, a preamble and an answer, say.
std::string separated(const Piece& piece, bool first) {
  return (piece.begins && !first ? "\n" : "") + piece.text;
}

class ChatBody : public Reply {
 public:
  ChatBody(const model::Tokenizer& tokenizer, ChatReplyOptions options)
      : tokenizer_(tokenizer), options_(std::move(options)), choices_(options_.choices) {}

  std::string begin() override { return ""; }

  std::string add(size_t index, std::span<const Piece> pieces, const ChoiceEnd* end, const Usage&) override {
    Choice& choice = choices_[index];
    for (const Piece& piece : pieces) switch (piece.kind) {
        case Piece::Kind::reasoning:
          choice.reasoning += separated(piece, choice.reasoning.empty());
          break;
        case Piece::Kind::content:
          choice.content += separated(piece, choice.content.empty());
          choice.tokens.insert(choice.tokens.end(), piece.tokens.begin(), piece.tokens.end());
          break;
        case Piece::Kind::call:
          choice.calls.push_back({.name = piece.text});
          break;
        case Piece::Kind::arguments:
          choice.calls.back().arguments += piece.text;
          break;
      }
    if (end) choice.end = *end;
    return "";
  }

  std::string done(const Usage& usage) override {
    Json reply    = envelope(options_.head, "chat.completion");
    Json& choices = reply["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) choices.push_back(choice_json(i));
    reply["usage"]   = usage_json(usage);
    reply["timings"] = timings_json(usage);
    return text_of(reply);
  }

  std::string fail(const ApiError& error) override { return text_of(error_json(error)); }

 private:
  struct Call {
    std::string name, arguments;
  };
  struct Choice {
    std::string reasoning, content;
    std::vector<ShownToken> tokens;
    std::vector<Call> calls;
    ChoiceEnd end;
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
        calls.push_back(call_json(call.name));
        calls.back()["function"]["arguments"] = call.arguments;
      }
    }
    Json logprobs = nullptr;
    if (options_.logprobs) logprobs = {{"content", logprobs_json(tokenizer_, choice.tokens)}};
    return {{"index", index},
            {"message", std::move(message)},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", finish_reason(choice.end, !choice.calls.empty())},
            {"stop_reason", stop_reason_json(choice.end.stop)}};
  }

  const model::Tokenizer& tokenizer_;
  const ChatReplyOptions options_;
  std::vector<Choice> choices_;
};

class ChatStream : public Reply {
 public:
  ChatStream(const model::Tokenizer& tokenizer, ChatReplyOptions options)
      : tokenizer_(tokenizer), options_(std::move(options)), choices_(options_.choices) {}

  std::string begin() override {
    std::string events;
    for (size_t i = 0; i < choices_.size(); ++i)
      events += data_event(chunk(i, {{"role", "assistant"}, {"content", ""}}));
    return events;
  }

  std::string add(size_t index, std::span<const Piece> pieces, const ChoiceEnd* end,
                  const Usage& usage) override {
    std::vector<Json> chunks;
    for (const Piece& piece : pieces) {
      if (piece.kind == Piece::Kind::reasoning && !options_.include_reasoning) continue;
      chunks.push_back(chunk(index, delta(choices_[index], piece)));
      if (options_.logprobs && piece.kind == Piece::Kind::content)
        chunks.back()["choices"][0]["logprobs"] = {{"content", logprobs_json(tokenizer_, piece.tokens)}};
    }
    if (end) {
      // With the last text, not in a chunk of its own: a client that times chunks sees one for each step.
      if (chunks.empty()) chunks.push_back(chunk(index, Json::object()));
      Json& choice            = chunks.back()["choices"][0];
      choice["finish_reason"] = finish_reason(*end, choices_[index].calls > 0);
      choice["stop_reason"]   = stop_reason_json(end->stop);
      if (usage.choices == static_cast<int64_t>(options_.choices))
        chunks.back()["timings"] = timings_json(usage);
    }
    std::string events;
    for (Json& chunk : chunks) {
      if (options_.continuous_usage_stats) chunk["usage"] = usage_json(usage);
      events += data_event(chunk);
    }
    return events;
  }

  std::string done(const Usage& usage) override {
    return end_of_stream(options_.head, kChunk, options_.include_usage, usage);
  }

  std::string fail(const ApiError& error) override { return failure_of_stream(error); }

 private:
  struct Choice {
    bool reasoned = false, spoke = false;
    int64_t calls = 0;
  };

  Json chunk(size_t index, Json delta) const {
    Json chunk       = envelope(options_.head, kChunk);
    chunk["choices"] = Json::array({Json{
        {"index", index}, {"delta", std::move(delta)}, {"logprobs", nullptr}, {"finish_reason", nullptr}}});
    return chunk;
  }

  static Json delta(Choice& choice, const Piece& piece) {
    switch (piece.kind) {
      case Piece::Kind::reasoning: {
        const std::string text = separated(piece, !std::exchange(choice.reasoned, true));
        return {{"reasoning", text}, {"reasoning_content", text}};
      }
      case Piece::Kind::content:
        return {{"content", separated(piece, !std::exchange(choice.spoke, true))}};
      case Piece::Kind::call: {
        Json call = {{"index", choice.calls++}};
        call.update(call_json(piece.text));
        return {{"tool_calls", Json::array({std::move(call)})}};
      }
      case Piece::Kind::arguments:
        break;
    }
    return {{"tool_calls",
             Json::array({Json{{"index", choice.calls - 1}, {"function", {{"arguments", piece.text}}}}})}};
  }

  const model::Tokenizer& tokenizer_;
  const ChatReplyOptions options_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<Reply> chat_body(const model::Tokenizer& tokenizer, ChatReplyOptions options) {
  return std::make_unique<ChatBody>(tokenizer, std::move(options));
}

std::unique_ptr<Reply> chat_stream(const model::Tokenizer& tokenizer, ChatReplyOptions options) {
  return std::make_unique<ChatStream>(tokenizer, std::move(options));
}

}  // namespace fathom::serve
