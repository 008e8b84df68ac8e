// What clients ask for, read from the bytes of a body and checked field by field: OpenAI's chat completions,
// completions and responses with vLLM's additions, and both vLLM's and llama.cpp's tokenize and detokenize
// (specs/serving.md section 2). After parsing, every number is within its range, every token id within the
// vocabulary, every list within its limit; unknown fields were ignored, null is as if absent. What remains to
// be checked is whether the model is the one served, and whether the prompt fits.
//
// Parsing never throws for what a body contains: all that is wrong with one is an ApiError of status 400.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/sampler.h"
#include "model/checkpoint.h"
#include "model/harmony_tools.h"
#include "model/tokenizer.h"
#include "serve/api_error.h"

namespace fathom::serve {

inline constexpr int64_t kMaxChoices       = 128;   // of one request, prompts times n
inline constexpr int64_t kMaxStops         = 16;    // stop strings
inline constexpr int64_t kMaxStopBytes     = 1024;  // of one stop string
inline constexpr int64_t kMaxStopTokenIds  = 1024;
inline constexpr int64_t kMaxLogprobs      = 20;
inline constexpr int64_t kMaxLogitBiases   = 4096;
inline constexpr int64_t kMaxTools         = 128;
inline constexpr int64_t kMaxNameBytes     = 128;  // of functions, response formats and request ids
inline constexpr int64_t kCompletionTokens = 16;   // of a completion that does not say: OpenAI's default

// Where a request says nothing.
using GenerationDefaults = model::SamplingDefaults;

// What a request is checked against.
struct ServedModel {
  int64_t vocab_size  = 0;
  int64_t max_context = 0;  // tokens, prompt and answer
  GenerationDefaults defaults;
};

// What an answer's text must be.
struct ResponseFormat {
  enum class Kind { text, json_object, json_schema };
  Kind kind = Kind::text;
  model::NamedSchema schema;  // of Kind::json_schema
};

// How to generate, and how to report it; the same for every endpoint.
struct GenerationOptions {
  // But for the seed. `logprobs` is set where log-probabilities were asked for, 0 for the chosen tokens'
  // only.
  engine::SamplingParameters sampling;
  std::optional<uint64_t> seed;       // none: any; choice i of n samples with seed + i
  std::optional<int64_t> max_tokens;  // at most max_context; none: as many as fit
  int64_t min_tokens = 0;             // at most max_tokens
  int64_t n          = 1;             // answers to each prompt
  std::vector<std::string> stop;      // none is empty
  std::vector<model::TokenId> stop_token_ids;
  bool ignore_eos                 = false;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens        = true;
  ResponseFormat format;

  bool stream                 = false;
  bool include_usage          = false;     // in a last chunk of its own
  bool continuous_usage_stats = false;     // in every chunk
  std::chrono::seconds ping_interval{30};  // a stream that is silent for so long says so; 0: never

  int priority = 0;
  std::string cache_salt;
  std::string request_id;  // visible ASCII; "" where the client gave none
};

struct ToolCall {
  std::string id, name;
  std::string arguments;  // JSON as the model once wrote it: perhaps none
};

struct ChatMessage {
  enum class Role { system, developer, user, assistant, tool };
  Role role;
  std::string content;               // text parts joined; "" where an assistant's is null
  std::string reasoning;             // of an assistant
  std::vector<ToolCall> tool_calls;  // of an assistant
  std::string function;              // of a tool: the one whose result this is
};

struct ToolChoice {
  enum class Kind { none, automatic, required, named };
  Kind kind = Kind::none;
  std::string name;  // of Kind::named: one of the tools
};

struct ChatRequest {
  std::string model;  // "" where the client named none
  std::vector<ChatMessage> messages;
  std::vector<model::NamedSchema> tools;    // functions; no two of one name
  ToolChoice tool_choice;                   // not none only where there are tools
  std::string reasoning_effort = "medium";  // low, medium or high
  bool include_reasoning       = true;
  bool parallel_tool_calls     = true;
  GenerationOptions options;
};

// Text, or the tokens themselves; neither is empty.
using CompletionPrompt = std::variant<std::string, std::vector<model::TokenId>>;

struct CompletionRequest {
  std::string model;
  std::vector<CompletionPrompt> prompts;  // at least one
  bool echo = false;                      // the prompt stands before its answer
  GenerationOptions options;              // max_tokens is set unless n_predict is -1
};

// Stateless: what a response would need of an earlier one must be in its input.
struct ResponsesRequest {
  ChatRequest chat;             // `instructions` are its first message, of role developer
  std::string instructions;     // for the reply, which repeats them
  std::string metadata = "{}";  // likewise: a JSON object
};

struct TokenizeRequest {
  std::string model;
  std::variant<std::string, ChatRequest> input;  // a text, or a conversation as chat would render it
  bool recognise_special = true;   // "<|end|>" in a text is one token; conversations never have such
  bool with_strings      = false;  // vLLM's: each token's text, in a list of their own
  bool with_pieces       = false;  // llama.cpp's: the same, beside its id
};

struct DetokenizeRequest {
  std::string model;
  std::vector<model::TokenId> tokens;
};

ApiResult<ChatRequest> parse_chat_request(std::string_view body, const ServedModel& served);
ApiResult<CompletionRequest> parse_completion_request(std::string_view body, const ServedModel& served);
ApiResult<ResponsesRequest> parse_responses_request(std::string_view body, const ServedModel& served);
ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const ServedModel& served);
ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body, const ServedModel& served);

}  // namespace fathom::serve
