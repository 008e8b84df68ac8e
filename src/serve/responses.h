// The response of POST /v1/responses: OpenAI's response object, with its output items. responses_stream.h
// has the same as typed events.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer.h"
#include "serve/response_writer.h"
#include "serve/responses_request.h"

namespace fathom::serve {

// Builds the response object, one output item after the other. A stream overrides the on_... functions to
// send an event for each step.
class ResponsesWriter : public ResponseWriter {
 public:
  // The tokenizer must outlive the writer, the request need not.
  ResponsesWriter(const model::Tokenizer& tokenizer, const ResponseEnvelope& envelope,
                  const ResponsesRequest& request);

  std::string begin() override { return ""; }
  std::string add(size_t choice, std::span<const OutputDelta> deltas, const ChoiceFinish* finish,
                  const Usage& usage) override;
  std::string done(const Usage& usage) override;
  std::string fail(const ApiError& error) override;

 protected:
  using Json = nlohmann::ordered_json;

  // Reasoning, a message or a function call.
  struct Item {
    OutputDelta::Kind kind;
    Json json;         // without its text while the item is open
    std::string text;  // of a function call: the arguments
    std::vector<ContentToken> tokens;
  };

  virtual void on_item_added(const Item&) {}
  virtual void on_delta(const Item&, const OutputDelta&) {}
  virtual void on_item_done(const Item&) {}

  void complete(const Usage& usage);  // sets the usage
  void close_item(std::string_view status);
  Json content_part(const Item& item) const;  // the only one of an item
  Json token_logprobs(std::span<const ContentToken> tokens) const;

  Json response_;

 private:
  void open_item(const OutputDelta& delta);

  const model::Tokenizer& tokenizer_;
  const bool include_reasoning_, logprobs_;
  std::optional<Item> item_;  // the open one
};

std::unique_ptr<ResponseWriter> responses_body(const model::Tokenizer& tokenizer,
                                               const ResponseEnvelope& envelope,
                                               const ResponsesRequest& request);

}  // namespace fathom::serve
