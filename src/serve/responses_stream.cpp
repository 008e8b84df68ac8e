#include "serve/responses_stream.h"

#include <utility>

#include "http/sse.h"
#include "serve/responses.h"

namespace fathom::serve {
namespace {

class ResponsesStream : public ResponsesWriter {
 public:
  using ResponsesWriter::ResponsesWriter;

  std::string begin() override {
    emit("response.created", {{"response", response_}});
    emit("response.in_progress", {{"response", response_}});
    return std::exchange(events_, "");
  }

  std::string add(size_t choice, std::span<const OutputDelta> deltas, const ChoiceFinish* finish,
                  const Usage& usage) override {
    ResponsesWriter::add(choice, deltas, finish, usage);
    return std::exchange(events_, "");
  }

  std::string done(const Usage& usage) override {
    complete(usage);
    const bool whole = response_["status"] == "completed";
    emit(whole ? "response.completed" : "response.incomplete", {{"response", response_}});
    return std::exchange(events_, "");
  }

  std::string fail(const ApiError& error) override {
    close_item("incomplete");
    response_["status"] = "failed";
    response_["error"]  = {{"code", "server_error"}, {"message", error.message}};
    emit("response.failed", {{"response", response_}});
    return std::exchange(events_, "");
  }

 private:
  void on_item_added(const Item& item) override {
    emit("response.output_item.added", {{"output_index", output_index()}, {"item", item.json}});
    if (item.kind != OutputDelta::Kind::tool_call)
      emit("response.content_part.added", with(part_place(item), "part", content_part(item)));
  }

  void on_delta(const Item& item, const OutputDelta& delta) override {
    switch (delta.kind) {
      case OutputDelta::Kind::reasoning:
        return emit("response.reasoning_text.delta", with(part_place(item), "delta", delta.text));
      case OutputDelta::Kind::content:
        return emit("response.output_text.delta", with(with(part_place(item), "delta", delta.text),
                                                       "logprobs", token_logprobs(delta.tokens)));
      case OutputDelta::Kind::tool_call:
      case OutputDelta::Kind::arguments:
        return emit("response.function_call_arguments.delta", with(item_place(item), "delta", delta.text));
    }
  }

  void on_item_done(const Item& item) override {
    if (item.kind == OutputDelta::Kind::tool_call) {
      emit("response.function_call_arguments.done",
           with(with(item_place(item), "name", item.json["name"]), "arguments", item.text));
    } else {
      const Json part = content_part(item);
      Json done       = with(part_place(item), "text", item.text);
      if (item.kind == OutputDelta::Kind::reasoning)
        emit("response.reasoning_text.done", std::move(done));
      else
        emit("response.output_text.done", with(std::move(done), "logprobs", part["logprobs"]));
      emit("response.content_part.done", with(part_place(item), "part", part));
    }
    emit("response.output_item.done", {{"output_index", output_index()}, {"item", item.json}});
  }

  void emit(std::string_view type, Json fields) {
    Json event = {{"type", type}, {"sequence_number", sequence_number_++}};
    event.update(fields);
    events_ += http::named_event(type, event);
  }

  size_t output_index() const { return response_["output"].size(); }
  // The fields that say which item, or which part of it, an event is about.
  Json item_place(const Item& item) const {
    return {{"item_id", item.json["id"]}, {"output_index", output_index()}};
  }
  Json part_place(const Item& item) const { return with(item_place(item), "content_index", 0); }
  static Json with(Json place, const char* key, Json value) {
    place[key] = std::move(value);
    return place;
  }

  int64_t sequence_number_ = 0;
  std::string events_;  // not sent yet
};

}  // namespace

std::unique_ptr<ResponseWriter> responses_stream(const model::Tokenizer& tokenizer,
                                                 const ResponseEnvelope& envelope,
                                                 const ResponsesRequest& request) {
  return std::make_unique<ResponsesStream>(tokenizer, envelope, request);
}

}  // namespace fathom::serve
