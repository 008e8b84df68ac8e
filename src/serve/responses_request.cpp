#include "serve/responses_request.h"

#include <fmt/format.h>

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/strict_json.h"
#include "serve/request_fields.h"

namespace fathom::serve {
namespace {

using Role = ChatMessage::Role;

constexpr int64_t kMaxMetadata = 16;  // OpenAI's limit

ChatMessage read_message(const Field& item) {
  if (!item["content"]) item["content"].fail("is missing");
  return {.role    = read_role(item["role"], {"system", "developer", "user", "assistant"}),
          .content = read_content(item["content"])};
}

ToolCall read_call(const Field& item) {
  if (!item["call_id"]) item["call_id"].fail("is missing");
  return {.id        = item["call_id"].text().value_or(""),
          .name      = read_name(item["name"]),
          .arguments = item["arguments"].text().value_or("{}")};
}

// The model's earlier reasoning, where the item has its text.
std::string read_reasoning(const Field& item) {
  std::string text;
  const Field content = item["content"];
  const int64_t count = content.size(std::numeric_limits<int64_t>::max());
  for (int64_t i = 0; i < count && !content.failed(); ++i) {
    const Field part = content.at(i);
    if (!part) part.fail("must be an object, not null");
    part["type"].one_of({"reasoning_text"});
    text += part["text"].text().value_or("");
  }
  return text;
}

void read_items(const Field& input, std::vector<ChatMessage>& messages) {
  std::map<std::string, std::string> functions;  // by the id of each call so far
  const int64_t count = input.size(std::numeric_limits<int64_t>::max());
  for (int64_t i = 0; i < count && !input.failed(); ++i) {
    const Field item = input.at(i);
    if (!item) item.fail("must be an object, not null");
    const std::string type = item["type"]
                                 .one_of({"message", "function_call", "function_call_output", "reasoning"})
                                 .value_or("message");
    if (type == "message") {
      messages.push_back(read_message(item));
    } else if (type == "reasoning") {
      messages.push_back({.role = Role::assistant, .reasoning = read_reasoning(item)});
    } else if (type == "function_call") {
      messages.push_back({.role = Role::assistant, .tool_calls = {read_call(item)}});
      functions[messages.back().tool_calls[0].id] = messages.back().tool_calls[0].name;
    } else {
      if (!item["output"]) item["output"].fail("is missing");
      const std::string id = item["call_id"].text().value_or("");
      const auto function  = functions.find(id);
      if (function == functions.end())
        item["call_id"].fail(
            fmt::format("is {}, but no function_call before it has that id: a server that "
                        "keeps nothing needs it in `input`",
                        in_quotes(id)));
      else
        messages.push_back(
            {.role = Role::tool, .content = read_content(item["output"]), .function = function->second});
    }
  }
}

std::string read_metadata(const Field& metadata) {
  for (const auto& [name, value] : metadata.members(kMaxMetadata)) value.text();
  return metadata.object_text().value_or("{}");
}

}  // namespace

ApiResult<ResponsesRequest> parse_responses_request(std::string_view body, const ServedModel& served) {
  return read_body(body, [&](const Field& root) {
    ResponsesRequest request{.instructions = root["instructions"].text().value_or(""),
                             .metadata     = read_metadata(root["metadata"])};
    ChatCompletionRequest& chat = request.chat;
    if (!request.instructions.empty())
      chat.messages.push_back({.role = Role::developer, .content = request.instructions});
    const Field input    = root["input"];
    const size_t earlier = chat.messages.size();
    if (input.is_text())
      chat.messages.push_back({.role = Role::user, .content = *input.text()});
    else
      read_items(input, chat.messages);
    if (chat.messages.size() == earlier) input.fail("is missing or empty");

    chat.tools               = read_tools(root["tools"], Shape::flat);
    chat.tool_choice         = read_tool_choice(root["tool_choice"], chat.tools, Shape::flat);
    chat.reasoning_effort    = read_reasoning_effort(root["reasoning"]["effort"]);
    chat.parallel_tool_calls = root["parallel_tool_calls"].boolean().value_or(true);
    chat.options             = read_generation_options(root, served, root["max_output_tokens"]);
    chat.options.format      = read_response_format(root, root["text"]["format"], Shape::flat);
    if (chat.options.n != 1) root["n"].fail("must be 1: a response is one answer");
    if (root["top_logprobs"].integer(0, kMaxLogprobs).value_or(0) > 0)
      root["top_logprobs"].fail("is not supported by this endpoint: /v1/chat/completions has them");
    refuse_unsupported(root, {"previous_response_id", "conversation", "background", "prompt"});
    return request;
  });
}

}  // namespace fathom::serve
