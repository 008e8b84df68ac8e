#include "serve/responses.h"

#include <utility>

#include "http/sse.h"
#include "serve/logprobs.h"
#include "serve/random_id.h"
#include "serve/response_object.h"

namespace fathom::serve {

using Json = nlohmann::ordered_json;

ResponsesWriter::ResponsesWriter(const model::Tokenizer& tokenizer, const ResponseEnvelope& envelope,
                                 const ResponsesRequest& request)
    : response_(new_response(envelope, request)),
      tokenizer_(tokenizer),
      include_reasoning_(request.chat.include_reasoning),
      logprobs_(request.chat.options.sampling.logprobs.has_value()) {}

std::string ResponsesWriter::add(size_t, std::span<const OutputDelta> deltas, const ChoiceFinish* finish,
                                 const Usage&) {
  for (const OutputDelta& delta : deltas) {
    if (delta.kind == OutputDelta::Kind::reasoning && !include_reasoning_) continue;
    if (delta.begins) {
      close_item("completed");
      open_item(delta);
    }
    if (delta.kind == OutputDelta::Kind::tool_call) continue;
    item_->text += delta.text;
    if (delta.kind == OutputDelta::Kind::content)
      item_->tokens.insert(item_->tokens.end(), delta.tokens.begin(), delta.tokens.end());
    on_delta(*item_, delta);
  }
  if (finish) {
    const bool whole = finish->reason == engine::FinishReason::stop;
    close_item(whole ? "completed" : "incomplete");
    response_["status"] = whole                                               ? "completed"
                          : finish->reason == engine::FinishReason::cancelled ? "cancelled"
                                                                              : "incomplete";
    if (finish->reason == engine::FinishReason::length)
      response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
  }
  return "";
}

void ResponsesWriter::complete(const Usage& usage) {
  response_["usage"]   = response_usage_json(usage);
  response_["timings"] = timings_json(usage);
  set_weight_version(response_, usage);
}

std::string ResponsesWriter::done(const Usage& usage) {
  complete(usage);
  return http::text_of(response_);
}

std::string ResponsesWriter::fail(const ApiError& error) { return http::text_of(error_json(error)); }

Json ResponsesWriter::token_logprobs(std::span<const ContentToken> tokens) const {
  return logprobs_ ? logprobs_json(tokenizer_, tokens) : Json::array();
}

Json ResponsesWriter::content_part(const Item& item) const {
  if (item.kind == OutputDelta::Kind::reasoning) return {{"type", "reasoning_text"}, {"text", item.text}};
  return {{"type", "output_text"},
          {"text", item.text},
          {"annotations", Json::array()},
          {"logprobs", token_logprobs(item.tokens)}};
}

void ResponsesWriter::open_item(const OutputDelta& delta) {
  Json json;
  switch (delta.kind) {
    case OutputDelta::Kind::reasoning:
      json = {{"type", "reasoning"},
              {"id", new_id("rs_")},
              {"summary", Json::array()},
              {"content", Json::array()}};
      break;
    case OutputDelta::Kind::content:
      json = {{"type", "message"}, {"id", new_id("msg_")}, {"role", "assistant"}, {"content", Json::array()}};
      break;
    case OutputDelta::Kind::tool_call:
    case OutputDelta::Kind::arguments:
      json = {{"type", "function_call"},
              {"id", new_id("fc_")},
              {"call_id", new_id("call_")},
              {"name", delta.text},
              {"arguments", ""}};
  }
  json["status"] = "in_progress";
  item_          = {.kind = delta.kind, .json = std::move(json)};
  on_item_added(*item_);
}

void ResponsesWriter::close_item(std::string_view status) {
  if (!item_) return;
  if (item_->kind == OutputDelta::Kind::tool_call)
    item_->json["arguments"] = item_->text;
  else
    item_->json["content"].push_back(content_part(*item_));
  item_->json["status"] = status;
  on_item_done(*item_);
  response_["output"].push_back(std::move(item_->json));
  item_.reset();
}

std::unique_ptr<ResponseWriter> responses_body(const model::Tokenizer& tokenizer,
                                               const ResponseEnvelope& envelope,
                                               const ResponsesRequest& request) {
  return std::make_unique<ResponsesWriter>(tokenizer, envelope, request);
}

}  // namespace fathom::serve
