#include "serve/chat_prompt.h"

#include <algorithm>
#include <utility>

#include "model/harmony_tools.h"

namespace fathom::serve {
namespace {

using Role = ChatMessage::Role;

bool instructs(const ChatMessage& message) {
  return message.role == Role::system || message.role == Role::developer;
}

void append_assistant(const ChatMessage& message, std::vector<model::HarmonyMessage>& prompt) {
  if (!message.reasoning.empty())
    prompt.push_back({.role = "assistant", .channel = "analysis", .content = message.reasoning});
  // Content before tool calls is a preamble (commentary), not the final answer.
  if (!message.content.empty())
    prompt.push_back({.role    = "assistant",
                      .channel = message.tool_calls.empty() ? "final" : "commentary",
                      .content = message.content});
  for (const ToolCall& call : message.tool_calls)
    prompt.push_back({.role         = "assistant",
                      .recipient    = "functions." + call.name,
                      .channel      = "commentary",
                      .content_type = "json",
                      .content      = call.arguments});
}

void append(const ChatMessage& message, std::vector<model::HarmonyMessage>& prompt) {
  switch (message.role) {
    case Role::system:
    case Role::developer:
      if (std::string text = model::harmony_developer_text(message.content, {}, nullptr); !text.empty())
        prompt.push_back({.role = "developer", .content = std::move(text)});
      break;
    case Role::user:
      prompt.push_back({.role = "user", .content = message.content});
      break;
    case Role::assistant:
      append_assistant(message, prompt);
      break;
    case Role::tool:
      prompt.push_back({.role      = "functions." + message.function,
                        .recipient = "assistant",
                        .channel   = "commentary",
                        .content   = message.content});
      break;
  }
}

}  // namespace

ApiResult<std::vector<model::HarmonyMessage>> chat_prompt(const ChatCompletionRequest& request,
                                                          const ChatStyle& style) {
  if (!style.harmony)
    return bad_request("messages",
                       "the model knows no chat format: its tokenizer lacks harmony's control tokens; send a "
                       "prompt to /v1/completions");
  const bool own_system = !style.system_prompt.empty();
  const auto& format    = request.options.format;
  const bool schema     = format.kind == ResponseFormat::Kind::json_schema && !own_system;
  // With tool_choice none the prompt does not mention the tools.
  const std::vector<model::NamedSchema> none;
  const auto& tools = request.tool_choice.kind == ToolChoice::Kind::none ? none : request.tools;

  const auto rest = std::find_if_not(request.messages.begin(), request.messages.end(), instructs);
  std::string instructions;
  for (auto message = request.messages.begin(); message != rest; ++message)
    instructions += (instructions.empty() || message->content.empty() ? "" : "\n\n") + message->content;

  std::vector<model::HarmonyMessage> prompt{
      {.role    = "system",
       .content = own_system ? style.system_prompt
                             : model::harmony_system_text(request.reasoning_effort, style.current_date,
                                                          !tools.empty())}};
  std::string developer =
      model::harmony_developer_text(instructions, tools, schema ? &format.schema : nullptr);
  if (!developer.empty()) prompt.push_back({.role = "developer", .content = std::move(developer)});
  for (auto message = rest; message != request.messages.end(); ++message) append(*message, prompt);
  return prompt;
}

}  // namespace fathom::serve
