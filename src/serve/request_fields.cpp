#include "serve/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <utility>

#include "model/strict_json.h"

namespace fathom::serve {
namespace {

using model::TokenId;

// Schemas are written out for the model to read: tokens by the hundred thousand are refused early.
constexpr size_t kMaxSchemaBytes = 1 << 20;
constexpr int64_t kMaxSaltBytes  = 1024;

constexpr int64_t kMaxPingSeconds = 86'400;

std::optional<TokenId> token_id(std::string_view text, int64_t vocab_size) {
  TokenId id               = 0;
  const auto [end, result] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (result != std::errc{} || end != text.data() + text.size() || id < 0 || id >= vocab_size) return {};
  return id;
}

engine::SamplingParameters read_sampling(const Field& body, const ServedModel& served) {
  const GenerationDefaults& defaults = served.defaults;
  engine::SamplingParameters sampling;
  sampling.temperature = body["temperature"].number(0, 100).value_or(defaults.temperature);
  sampling.top_p       = body["top_p"].number(0, 1).value_or(defaults.top_p);
  if (sampling.top_p == 0) body["top_p"].fail("is 0, but must be above 0 and at most 1");
  // -1 is vLLM's word for all.
  sampling.top_k = body["top_k"].integer(-1, std::numeric_limits<int64_t>::max()).value_or(defaults.top_k);
  if (sampling.top_k < 0 || sampling.top_k >= served.vocab_size) sampling.top_k = 0;
  sampling.min_p = body["min_p"].number(0, 1).value_or(0);

  // Within these no finite logit becomes infinite.
  const double repeat         = body["repeat_penalty"].number(0.01, 100).value_or(1);  // llama.cpp's name
  sampling.repetition_penalty = body["repetition_penalty"].number(0.01, 100).value_or(repeat);
  sampling.presence_penalty   = body["presence_penalty"].number(-2, 2).value_or(0);
  sampling.frequency_penalty  = body["frequency_penalty"].number(-2, 2).value_or(0);
  for (const auto& [name, bias] : body["logit_bias"].members(kMaxLogitBiases)) {
    const auto id = token_id(name, served.vocab_size);
    if (!id) bias.fail(fmt::format("names no token: ids are 0 to {}", served.vocab_size - 1));
    const auto value = bias.number(-100, 100);
    if (id && value) sampling.logit_bias[*id] = static_cast<float>(*value);
  }
  return sampling;
}

std::vector<std::string> read_stop(const Field& stop) {
  std::vector<std::string> found;
  if (stop.is_text()) {
    if (const auto text = stop.text(kMaxStopBytes)) found.push_back(*text);
    return found;
  }
  const int64_t count = stop.size(kMaxStops);
  for (int64_t i = 0; i < count; ++i) {
    if (!stop.at(i)) stop.at(i).fail("must be a string, not null");
    if (const auto text = stop.at(i).text(kMaxStopBytes)) found.push_back(*text);
  }
  return found;
}

std::string read_schema(const Field& schema) {
  std::string text = schema.object_text().value_or("");
  if (text.size() > kMaxSchemaBytes)
    schema.fail(fmt::format("has {} bytes, but at most {} are allowed", text.size(), kMaxSchemaBytes));
  return text;
}

model::NamedSchema read_named_schema(const Field& field, std::string_view schema_name) {
  return {.name        = read_name(field["name"]),
          .description = field["description"].text().value_or(""),
          .schema      = read_schema(field[schema_name])};
}

// structured_outputs.json or guided_json: a schema, or one as text.
ResponseFormat read_schema_alone(const Field& schema) {
  ResponseFormat format{.kind = ResponseFormat::Kind::json_schema, .schema = {.name = "answer"}};
  if (!schema.is_text()) {
    format.schema.schema = read_schema(schema);
    return format;
  }
  JsonBody inner(*schema.text());
  if (inner.error()) schema.fail("is a string, but no JSON object is in it");
  format.schema.schema = read_schema(inner.root());
  if (inner.error()) schema.fail("is too long");
  return format;
}

}  // namespace

std::string read_name(const Field& name) {
  const auto text = name.text(kMaxNameBytes);
  if (!text) {
    name.fail("is missing");
    return "";
  }
  const bool plain = std::all_of(text->begin(), text->end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
  if (!plain)
    name.fail(
        fmt::format("is {}, but may have letters, digits, '_', '-' and '.' only", model::in_quotes(*text)));
  return *text;
}

void refuse_unsupported(const Field& body, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    if (const Field field = body[name]; field && !field.is_empty())
      field.fail("is not supported by this server: leave it out");
}

GenerationOptions read_options(const Field& body, const ServedModel& served, const Field& max_tokens) {
  GenerationOptions options;
  options.sampling = read_sampling(body, served);
  // As in vLLM, -1 is no seed.
  const auto seed =
      body["seed"].integer(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  if (seed && *seed != -1) options.seed = static_cast<uint64_t>(*seed);

  options.max_tokens = max_tokens.integer(1, served.max_context);
  // llama.cpp's name, and its -1 for as many as fit.
  const auto predict = body["n_predict"].integer(-1, served.max_context);
  if (predict == 0) body["n_predict"].fail("is 0, but must be at least 1, or -1");
  if (!max_tokens && predict != -1) options.max_tokens = predict;
  options.min_tokens =
      body["min_tokens"].integer(0, options.max_tokens.value_or(served.max_context)).value_or(0);
  options.n                          = body["n"].integer(1, kMaxChoices).value_or(1);
  options.stop                       = read_stop(body["stop"]);
  options.stop_token_ids             = body["stop_token_ids"].token_ids(kMaxStopTokenIds, served.vocab_size);
  options.ignore_eos                 = body["ignore_eos"].boolean().value_or(false);
  options.include_stop_str_in_output = body["include_stop_str_in_output"].boolean().value_or(false);
  options.skip_special_tokens        = body["skip_special_tokens"].boolean().value_or(true);

  options.stream                 = body["stream"].boolean().value_or(false);
  const Field streaming          = body["stream_options"];
  options.include_usage          = streaming["include_usage"].boolean().value_or(false);
  options.continuous_usage_stats = streaming["continuous_usage_stats"].boolean().value_or(false);
  if (streaming && !options.stream) streaming.fail("needs \"stream\": true");
  // llama.cpp's name, and its -1 for never.
  if (const auto seconds = body["sse_ping_interval"].integer(-1, kMaxPingSeconds))
    options.ping_interval = std::chrono::seconds(std::max<int64_t>(0, *seconds));

  constexpr int64_t kMaxPriority = std::numeric_limits<int>::max();
  options.priority   = static_cast<int>(body["priority"].integer(-kMaxPriority, kMaxPriority).value_or(0));
  options.cache_salt = body["cache_salt"].text(kMaxSaltBytes).value_or("");
  options.request_id = body["request_id"].text(kMaxNameBytes).value_or("");
  if (!std::all_of(options.request_id.begin(), options.request_id.end(),
                   [](char c) { return c > 32 && c < 127; }))
    body["request_id"].fail("may have visible ASCII characters only");

  refuse_unsupported(body, {"prompt_logprobs", "allowed_token_ids", "bad_words", "truncate_prompt_tokens",
                            "use_beam_search", "logits_processors", "kv_transfer_params", "guided_regex",
                            "guided_choice", "guided_grammar", "grammar"});
  return options;
}

ResponseFormat read_response_format(const Field& body, const Field& format, Shape shape) {
  using Kind = ResponseFormat::Kind;
  ResponseFormat found;
  if (format) {
    if (!format["type"]) format["type"].fail("is missing");
    const std::string type = format["type"].one_of({"text", "json_object", "json_schema"}).value_or("text");
    if (type == "json_object") found.kind = Kind::json_object;
    if (type == "json_schema") {
      const Field named = shape == Shape::flat ? format : format["json_schema"];
      found             = {.kind = Kind::json_schema, .schema = read_named_schema(named, "schema")};
      if (!named["schema"]) named["schema"].fail("is missing");
    }
  }
  const Field outputs     = body["structured_outputs"];
  const Field schema      = outputs["json"] ? outputs["json"] : body["guided_json"];
  const Field json_object = outputs["json_object"];
  refuse_unsupported(outputs, {"regex", "choice", "grammar", "structural_tag"});
  const bool any_object = json_object.boolean().value_or(false);
  if ((found.kind != Kind::text) + static_cast<bool>(schema) + any_object > 1)
    (schema ? schema : json_object).fail("constrains an answer that is constrained already: do so once");
  if (schema) return read_schema_alone(schema);
  if (any_object) found.kind = Kind::json_object;
  return found;
}

std::vector<model::NamedSchema> read_tools(const Field& tools, Shape shape) {
  std::vector<model::NamedSchema> found;
  std::set<std::string> names;
  size_t bytes        = 0;
  const int64_t count = tools.size(kMaxTools);
  for (int64_t i = 0; i < count; ++i) {
    const Field tool = tools.at(i);
    if (!tool["type"]) tool["type"].fail("is missing");
    tool["type"].one_of({"function"});
    const Field function = shape == Shape::flat ? tool : tool["function"];
    found.push_back(read_named_schema(function, "parameters"));
    bytes += found.back().schema.size();
    if (!names.insert(found.back().name).second)
      function["name"].fail("is the name of an earlier tool too: give each its own");
  }
  if (bytes > kMaxSchemaBytes)
    tools.fail(
        fmt::format("have {} bytes of parameters, but at most {} are allowed", bytes, kMaxSchemaBytes));
  return found;
}

ToolChoice read_tool_choice(const Field& choice, const std::vector<model::NamedSchema>& tools, Shape shape) {
  using Kind = ToolChoice::Kind;
  const ToolChoice automatic{.kind = tools.empty() ? Kind::none : Kind::automatic};
  if (!choice) return automatic;
  if (choice.is_object()) {
    choice["type"].one_of({"function"});
    const Field named = (shape == Shape::flat ? choice : choice["function"])["name"];
    const ToolChoice one{.kind = Kind::named, .name = read_name(named)};
    if (std::none_of(tools.begin(), tools.end(), [&](const auto& tool) { return tool.name == one.name; }))
      named.fail(fmt::format("is {}, but no tool has that name", model::in_quotes(one.name)));
    return one;
  }
  const std::string word = choice.one_of({"none", "auto", "required"}).value_or("none");
  if (word == "none") return {};
  if (word == "auto") return automatic;
  if (tools.empty()) choice.fail("is 'required', but there are no tools to choose from");
  return {.kind = Kind::required};
}

std::string read_effort(const Field& effort) {
  const std::string word =
      effort.one_of({"none", "minimal", "low", "medium", "high", "xhigh", "max"}).value_or("medium");
  if (word == "none" || word == "minimal") return "low";
  if (word == "xhigh" || word == "max") return "high";
  return word;
}

ChatMessage::Role read_role(const Field& role, std::initializer_list<std::string_view> roles) {
  using Role = ChatMessage::Role;
  if (!role) role.fail("is missing");
  const std::string word = role.one_of(roles).value_or("user");
  return word == "system"      ? Role::system
         : word == "developer" ? Role::developer
         : word == "assistant" ? Role::assistant
         : word == "tool"      ? Role::tool
                               : Role::user;
}

std::string read_content(const Field& content) {
  if (!content.is_array()) return content.text().value_or("");
  std::string text;
  const int64_t count = content.size(std::numeric_limits<int64_t>::max());
  for (int64_t i = 0; i < count && !content.failed(); ++i) {
    const Field part = content.at(i);
    if (!part["type"]) part["type"].fail("is missing");
    if (part["type"].one_of({"text", "input_text", "output_text"}) && !part["text"])
      part["text"].fail("is missing");
    text += part["text"].text().value_or("");
  }
  return text;
}

}  // namespace fathom::serve
