#include "serve/chat_prompt.h"

#include <gtest/gtest.h>

#include <string>

#include "serve/expect_parsed.h"

namespace fathom::serve {
namespace {

const ChatStyle kGptOss{.harmony = true, .current_date = "2025-06-28"};
const ChatStyle kOwn{.harmony = true, .system_prompt = "You are tiny.", .current_date = "2025-06-28"};

// One line for each message: role>recipient[channel/content_type] content.
std::string prompt(const std::string& fields, const ChatStyle& style) {
  const std::string body = "{" + fields + "}";
  const auto result      = chat_prompt(accepted(parse_chat_completion_request(body, kServed), body), style);
  if (const auto* error = std::get_if<ApiError>(&result)) return error->message;
  std::string lines;
  for (const auto& m : std::get<0>(result))
    lines += m.role + ">" + m.recipient + "[" + m.channel + "/" + m.content_type + "] " + m.content + "\n";
  return lines;
}

std::string system_line(const char* effort, bool has_functions) {
  return "system>[/] " + model::harmony_system_text(effort, "2025-06-28", has_functions) + "\n";
}

constexpr const char* kUser         = R"("messages":[{"role":"user","content":"hi"}])";
constexpr const char* kFunctionTool = R"("tools":[{"type":"function","function":{"name":"f"}}])";
constexpr const char* kDeveloperTools =
    "developer>[/] # Tools\n\n## functions\n\nnamespace functions {\n\ntype f = () => any;\n\n} // namespace "
    "functions";

TEST(ChatPrompt, OnlyWhatWasSaid) {
  EXPECT_EQ(prompt(kUser, kGptOss), system_line("medium", false) + "user>[/] hi\n");
  EXPECT_EQ(prompt(std::string(kUser) + R"(,"reasoning_effort":"high")", kGptOss),
            system_line("high", false) + "user>[/] hi\n");
}

// The bundled model was trained on its own system message and user messages only.
TEST(ChatPrompt, ACheckpointsOwnSystemMessage) {
  const std::string schema =
      R"(,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"a":1}}})";
  EXPECT_EQ(prompt(std::string(kUser) + schema, kOwn), "system>[/] You are tiny.\nuser>[/] hi\n");
  EXPECT_EQ(prompt(R"("messages":[{"role":"system","content":""},{"role":"user","content":"hi"}])", kOwn),
            "system>[/] You are tiny.\nuser>[/] hi\n");
  EXPECT_EQ(prompt(R"("messages":[{"role":"system","content":"S"},{"role":"user","content":"hi"}])", kOwn),
            "system>[/] You are tiny.\ndeveloper>[/] # Instructions\n\nS\nuser>[/] hi\n");
  EXPECT_EQ(prompt(std::string(kUser) + "," + kFunctionTool, kOwn),
            std::string("system>[/] You are tiny.\n") + kDeveloperTools + "\nuser>[/] hi\n");
}

TEST(ChatPrompt, InstructionsToolsAndFormatAreOneMessage) {
  EXPECT_EQ(
      prompt(
          R"("messages":[{"role":"system","content":"S"},{"role":"developer","content":"D"},{"role":"user","content":"hi"},
                {"role":"system","content":"T"}],"response_format":{"type":"json_schema","json_schema":
                {"name":"n","description":"d","schema":{"z":1,"a":2}}},)" +
              std::string(kFunctionTool),
          kGptOss),
      system_line("medium", true) +
          "developer>[/] # Instructions\n\nS\n\nD\n\n# Tools\n\n## functions\n\nnamespace functions {\n\n"
          "type f = () => any;\n\n} // namespace functions\n\n# Response Formats\n\n## n\n\n// d\n"
          R"({"z":1,"a":2})"
          "\nuser>[/] hi\ndeveloper>[/] # Instructions\n\nT\n");
}

TEST(ChatPrompt, ToolsThatMayNotBeCalledAreNotShown) {
  EXPECT_EQ(prompt(std::string(kUser) + "," + kFunctionTool + R"(,"tool_choice":"none")", kGptOss),
            prompt(kUser, kGptOss));
  EXPECT_EQ(prompt(std::string(kUser) + "," + kFunctionTool + R"(,"tool_choice":"required")", kGptOss),
            system_line("medium", true) + kDeveloperTools + "\nuser>[/] hi\n");
}

TEST(ChatPrompt, CallsAndTheirResults) {
  EXPECT_EQ(prompt(R"("messages":[{"role":"user","content":"?"},
      {"role":"assistant","content":"Wait.","reasoning":"hmm","tool_calls":[
        {"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},
        {"id":"2","type":"function","function":{"name":"g","arguments":""}}]},
      {"role":"tool","tool_call_id":"2","content":"two"},{"role":"tool","tool_call_id":"1","content":""},
      {"role":"assistant","content":"done","reasoning_content":"so"},{"role":"assistant","content":null}])",
                   kGptOss),
            system_line("medium", false) +
                "user>[/] ?\nassistant>[analysis/] hmm\nassistant>[commentary/] Wait.\n"
                "assistant>functions.f[commentary/json] {\"x\":1}\nassistant>functions.g[commentary/json] \n"
                "functions.g>assistant[commentary/] two\nfunctions.f>assistant[commentary/] \n"
                "assistant>[analysis/] so\nassistant>[final/] done\n");
}

TEST(ChatPrompt, NoChatWithoutHarmony) {
  const std::string body = "{" + std::string(kUser) + "}";
  const auto result      = chat_prompt(accepted(parse_chat_completion_request(body, kServed), body), {});
  ASSERT_TRUE(std::holds_alternative<ApiError>(result));
  EXPECT_EQ(std::get<ApiError>(result).status, 400);
  EXPECT_NE(std::get<ApiError>(result).message.find("no chat format"), std::string::npos);
}

}  // namespace
}  // namespace fathom::serve
