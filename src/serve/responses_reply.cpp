#include "serve/responses_reply.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "serve/sse.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json schema_json(const std::string& schema) { return schema.empty() ? Json(nullptr) : Json::parse(schema); }

Json tools_json(const std::vector<model::NamedSchema>& tools) {
  Json all = Json::array();
  for (const model::NamedSchema& tool : tools)
    all.push_back({{"type", "function"},
                   {"name", tool.name},
                   {"description", text_or_null(tool.description)},
                   {"parameters", schema_json(tool.schema)},
                   {"strict", false}});
  return all;
}

Json tool_choice_json(const ToolChoice& choice) {
  switch (choice.kind) {
    case ToolChoice::Kind::none:
      return "none";
    case ToolChoice::Kind::automatic:
      return "auto";
    case ToolChoice::Kind::required:
      return "required";
    case ToolChoice::Kind::named:
      break;
  }
  return {{"type", "function"}, {"name", choice.name}};
}

Json format_json(const ResponseFormat& format) {
  switch (format.kind) {
    case ResponseFormat::Kind::text:
      return {{"type", "text"}};
    case ResponseFormat::Kind::json_object:
      return {{"type", "json_object"}};
    case ResponseFormat::Kind::json_schema:
      break;
  }
  return {{"type", "json_schema"},
          {"name", format.schema.name},
          {"description", text_or_null(format.schema.description)},
          {"schema", schema_json(format.schema.schema)}};
}

// The response before anything was generated.
Json new_response(const ReplyHead& head, const ResponsesRequest& request) {
  const ChatRequest& chat          = request.chat;
  const GenerationOptions& options = chat.options;
  return {{"id", head.id},
          {"object", "response"},
          {"created_at", head.created},
          {"status", "in_progress"},
          {"error", nullptr},
          {"incomplete_details", nullptr},
          {"instructions", text_or_null(request.instructions)},
          {"max_output_tokens", options.max_tokens ? Json(*options.max_tokens) : Json(nullptr)},
          {"metadata", Json::parse(request.metadata)},
          {"model", head.model},
          {"output", Json::array()},
          {"parallel_tool_calls", chat.parallel_tool_calls},
          {"previous_response_id", nullptr},
          {"reasoning", {{"effort", chat.reasoning_effort}, {"summary", nullptr}}},
          {"store", false},
          {"temperature", options.sampling.temperature},
          {"text", {{"format", format_json(options.format)}}},
          {"tool_choice", tool_choice_json(chat.tool_choice)},
          {"tools", tools_json(chat.tools)},
          {"top_p", options.sampling.top_p},
          {"truncation", "disabled"},
          {"usage", nullptr}};
}

Json responses_usage(const Usage& usage) {
  // Writes to the cache that would cost extra, of which there are none; strict clients want the field.
  const Json input = {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}};
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", input},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

// Builds the response object; the events of a stream tell how it grows.
class Responses : public Reply {
 public:
  Responses(const model::Tokenizer& tokenizer, const ReplyHead& head, const ResponsesRequest& request,
            bool stream)
      : tokenizer_(tokenizer),
        stream_(stream),
        include_reasoning_(request.chat.include_reasoning),
        logprobs_(request.chat.options.sampling.logprobs.has_value()),
        response_(new_response(head, request)) {}

  std::string begin() override {
    emit("response.created", {{"response", response_}});
    emit("response.in_progress", {{"response", response_}});
    return std::exchange(events_, "");
  }

  std::string add(size_t, std::span<const Piece> pieces, const ChoiceEnd* end, const Usage&) override {
    for (const Piece& piece : pieces) {
      if (piece.kind == Piece::Kind::reasoning && !include_reasoning_) continue;
      if (piece.begins) {
        close("completed");
        open(piece);
      }
      if (piece.kind != Piece::Kind::call) grow(piece);
    }
    if (end) {
      const bool whole = end->reason == engine::FinishReason::stop;
      close(whole ? "completed" : "incomplete");
      response_["status"] = whole                                            ? "completed"
                            : end->reason == engine::FinishReason::cancelled ? "cancelled"
                                                                             : "incomplete";
      if (end->reason == engine::FinishReason::length)
        response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
    }
    return std::exchange(events_, "");
  }

  std::string done(const Usage& usage) override {
    response_["usage"]   = responses_usage(usage);
    response_["timings"] = timings_json(usage);
    if (!stream_) return text_of(response_);
    const bool whole = response_["status"] == "completed";
    emit(whole ? "response.completed" : "response.incomplete", {{"response", response_}});
    return std::exchange(events_, "");
  }

  std::string fail(const ApiError& error) override {
    if (!stream_) return text_of(error_json(error));
    close("incomplete");
    response_["status"] = "failed";
    response_["error"]  = {{"code", "server_error"}, {"message", error.message}};
    emit("response.failed", {{"response", response_}});
    return std::exchange(events_, "");
  }

 private:
  struct Item {
    Piece::Kind kind;
    Json json;  // without its text, which grows
    std::string text;
    std::vector<ShownToken> tokens;
  };

  void emit(std::string_view type, Json fields) {
    if (!stream_) return;
    Json event = {{"type", type}, {"sequence_number", sequence_number_++}};
    event.update(fields);
    events_ += named_event(type, event);
  }

  // Of an event about the open item, or about its only part.
  Json item_place() const {
    return {{"item_id", item_->json["id"]}, {"output_index", response_["output"].size()}};
  }
  Json part_place() const {
    Json place             = item_place();
    place["content_index"] = 0;
    return place;
  }
  static Json with(Json place, const char* key, Json value) {
    place[key] = std::move(value);
    return place;
  }

  Json token_logprobs(std::span<const ShownToken> tokens) const {
    return logprobs_ ? logprobs_json(tokenizer_, tokens) : Json::array();
  }
  Json part() const {
    if (item_->kind == Piece::Kind::reasoning) return {{"type", "reasoning_text"}, {"text", item_->text}};
    return {{"type", "output_text"},
            {"text", item_->text},
            {"annotations", Json::array()},
            {"logprobs", token_logprobs(item_->tokens)}};
  }

  void open(const Piece& piece) {
    Json json;
    switch (piece.kind) {
      case Piece::Kind::reasoning:
        json = {{"type", "reasoning"},
                {"id", new_id("rs_")},
                {"summary", Json::array()},
                {"content", Json::array()}};
        break;
      case Piece::Kind::content:
        json = {
            {"type", "message"}, {"id", new_id("msg_")}, {"role", "assistant"}, {"content", Json::array()}};
        break;
      case Piece::Kind::call:
      case Piece::Kind::arguments:
        json = {{"type", "function_call"},
                {"id", new_id("fc_")},
                {"call_id", new_id("call_")},
                {"name", piece.text},
                {"arguments", ""}};
    }
    json["status"] = "in_progress";
    item_          = {.kind = piece.kind, .json = std::move(json)};
    emit("response.output_item.added", {{"output_index", response_["output"].size()}, {"item", item_->json}});
    if (piece.kind != Piece::Kind::call)
      emit("response.content_part.added", with(part_place(), "part", part()));
  }

  void grow(const Piece& piece) {
    item_->text += piece.text;
    switch (piece.kind) {
      case Piece::Kind::reasoning:
        return emit("response.reasoning_text.delta", with(part_place(), "delta", piece.text));
      case Piece::Kind::content:
        item_->tokens.insert(item_->tokens.end(), piece.tokens.begin(), piece.tokens.end());
        return emit("response.output_text.delta",
                    with(with(part_place(), "delta", piece.text), "logprobs", token_logprobs(piece.tokens)));
      case Piece::Kind::call:
      case Piece::Kind::arguments:
        return emit("response.function_call_arguments.delta", with(item_place(), "delta", piece.text));
    }
  }

  void close(std::string_view status) {
    if (!item_) return;
    if (item_->kind == Piece::Kind::call) {
      emit("response.function_call_arguments.done",
           with(with(item_place(), "name", item_->json["name"]), "arguments", item_->text));
      item_->json["arguments"] = item_->text;
    } else {
      const Json whole = part();
      Json done        = with(part_place(), "text", item_->text);
      if (item_->kind == Piece::Kind::reasoning)
        emit("response.reasoning_text.done", std::move(done));
      else
        emit("response.output_text.done", with(std::move(done), "logprobs", whole["logprobs"]));
      emit("response.content_part.done", with(part_place(), "part", whole));
      item_->json["content"].push_back(whole);
    }
    item_->json["status"] = status;
    emit("response.output_item.done", {{"output_index", response_["output"].size()}, {"item", item_->json}});
    response_["output"].push_back(std::move(item_->json));
    item_.reset();
  }

  const model::Tokenizer& tokenizer_;
  const bool stream_, include_reasoning_, logprobs_;
  Json response_;
  std::optional<Item> item_;  // the one that grows
  int64_t sequence_number_ = 0;
  std::string events_;
};

}  // namespace

std::unique_ptr<Reply> responses_body(const model::Tokenizer& tokenizer, const ReplyHead& head,
                                      const ResponsesRequest& request) {
  return std::make_unique<Responses>(tokenizer, head, request, false);
}

std::unique_ptr<Reply> responses_stream(const model::Tokenizer& tokenizer, const ReplyHead& head,
                                        const ResponsesRequest& request) {
  return std::make_unique<Responses>(tokenizer, head, request, true);
}

}  // namespace fathom::serve
