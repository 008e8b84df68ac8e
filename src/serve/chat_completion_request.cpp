#include "serve/chat_completion_request.h"

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

std::vector<ToolCall> read_tool_calls(const Field& calls) {
  std::vector<ToolCall> found;
  const int64_t count = calls.size(kMaxTools);
  for (int64_t i = 0; i < count; ++i) {
    const Field call = calls.at(i), function = call["function"];
    call["type"].one_of({"function"});
    found.push_back({.id        = call["id"].text().value_or(""),
                     .name      = read_name(function["name"]),
                     .arguments = function["arguments"].text().value_or("{}")});
  }
  return found;
}

// `functions`: the function of each tool call so far, by the call's id.
ChatMessage read_message(const Field& message, std::map<std::string, std::string>& functions) {
  ChatMessage found{.role = read_role(message["role"], {"system", "developer", "user", "assistant", "tool"}),
                    .content = read_content(message["content"])};
  if (found.role == Role::assistant) {
    // `reasoning` is vLLM's name, `reasoning_content` that of other servers.
    found.reasoning  = message["reasoning"].text().value_or(message["reasoning_content"].text().value_or(""));
    found.tool_calls = read_tool_calls(message["tool_calls"]);
    for (const ToolCall& call : found.tool_calls) functions[call.id] = call.name;
    return found;
  }
  if (!message["content"]) message["content"].fail("is missing");
  if (found.role != Role::tool) return found;
  const std::string id = message["tool_call_id"].text().value_or("");
  if (const auto function = functions.find(id); function != functions.end())
    found.function = function->second;
  else if (message["name"])
    found.function = read_name(message["name"]);
  else
    message["tool_call_id"].fail(
        fmt::format("is {}, but no call before it has that id, and there is no `name`", in_quotes(id)));
  return found;
}

std::vector<ChatMessage> read_messages(const Field& messages) {
  std::vector<ChatMessage> found;
  std::map<std::string, std::string> functions;
  const int64_t count = messages.size(std::numeric_limits<int64_t>::max());
  if (count == 0) messages.fail("must have at least one message");
  for (int64_t i = 0; i < count && !messages.failed(); ++i) {
    if (!messages.at(i)) messages.at(i).fail("must be an object, not null");
    found.push_back(read_message(messages.at(i), functions));
  }
  return found;
}

}  // namespace

std::string read_reasoning_effort(const Field& effort) {
  const std::string word =
      effort.one_of({"none", "minimal", "low", "medium", "high", "xhigh", "max"}).value_or("medium");
  if (word == "none" || word == "minimal") return "low";
  if (word == "xhigh" || word == "max") return "high";
  return word;
}

ChatCompletionRequest read_chat_completion(const Field& body, const ServedModel& served) {
  const Field kwargs     = body["chat_template_kwargs"];
  const Field effort     = body["reasoning_effort"] ? body["reasoning_effort"] : kwargs["reasoning_effort"];
  const Field max_tokens = body["max_completion_tokens"] ? body["max_completion_tokens"] : body["max_tokens"];
  ChatCompletionRequest request{.messages            = read_messages(body["messages"]),
                                .tools               = read_tools(body["tools"], Shape::nested),
                                .reasoning_effort    = read_reasoning_effort(effort),
                                .include_reasoning   = body["include_reasoning"].boolean().value_or(true),
                                .parallel_tool_calls = body["parallel_tool_calls"].boolean().value_or(true),
                                .options             = read_generation_options(body, served, max_tokens)};
  request.tool_choice    = read_tool_choice(body["tool_choice"], request.tools, Shape::nested);
  request.options.format = read_response_format(body, body["response_format"], Shape::nested);

  // Checked even where max_completion_tokens takes its place.
  body["max_tokens"].integer(1, served.max_context);

  const bool logprobs = body["logprobs"].boolean().value_or(false);
  const auto top      = body["top_logprobs"].integer(0, kMaxLogprobs);
  if (logprobs) request.options.sampling.logprobs = top.value_or(0);
  if (top.value_or(0) > 0 && !logprobs) body["top_logprobs"].fail("needs \"logprobs\": true");

  refuse_unsupported(body, {"functions", "function_call", "audio", "echo", "continue_final_message",
                            "chat_template", "documents"});
  if (body["add_generation_prompt"].boolean() == false)
    body["add_generation_prompt"].fail("must be true: an answer is what follows the messages");
  return request;
}

ApiResult<ChatCompletionRequest> parse_chat_completion_request(std::string_view body,
                                                               const ServedModel& served) {
  return read_body(body, [&](const Field& root) { return read_chat_completion(root, served); });
}

}  // namespace fathom::serve
