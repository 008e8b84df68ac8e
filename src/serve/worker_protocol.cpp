#include "serve/worker_protocol.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/expect.h"
#include "engine/engine.h"
#include "model/config_fields.h"

namespace fathom::serve {
namespace {

using WireJson = nlohmann::ordered_json;
using engine::FinishReason;
using engine::KvBlock;
using engine::SamplingParameters;

constexpr std::string_view kRoles[] = {"prefill", "decode", "both", "router"};

// JSON has no infinity.
WireJson wire_logprob(double logprob) {
  return std::isfinite(logprob) ? WireJson(logprob) : WireJson(nullptr);
}
double logprob_from(const WireJson& json) { return json.is_null() ? -INFINITY : json.get<double>(); }

WireJson wire_constraint(const ConstraintRequest& asked) {
  WireJson tools = WireJson::array();
  for (const ToolSchema& tool : asked.tools) tools.push_back({tool.name, tool.parameters});
  WireJson json = {{"kind", static_cast<int>(asked.kind)},
                   {"schema", asked.schema},
                   {"tools", std::move(tools)},
                   {"allow_reasoning", asked.allow_reasoning}};
  if (asked.max_reasoning_tokens) json["max_reasoning_tokens"] = *asked.max_reasoning_tokens;
  if (asked.max_tokens) json["max_tokens"] = *asked.max_tokens;
  return json;
}

ConstraintRequest constraint_from(const WireJson& json) {
  ConstraintRequest asked{.kind            = static_cast<ConstraintRequest::Kind>(json.at("kind").get<int>()),
                          .schema          = json.at("schema").get<std::string>(),
                          .allow_reasoning = json.at("allow_reasoning").get<bool>()};
  for (const WireJson& tool : json.at("tools"))
    asked.tools.push_back(
        {.name = tool.at(0).get<std::string>(), .parameters = tool.at(1).get<std::string>()});
  if (json.contains("max_reasoning_tokens"))
    asked.max_reasoning_tokens = json["max_reasoning_tokens"].get<int64_t>();
  if (json.contains("max_tokens")) asked.max_tokens = json["max_tokens"].get<int64_t>();
  return asked;
}

WireJson wire_sampling(const SamplingParameters& s) {
  WireJson bias = WireJson::array();
  for (const auto& [id, value] : s.logit_bias) bias.push_back({id, value});
  WireJson json = {{"temperature", s.temperature},
                   {"top_k", s.top_k},
                   {"top_p", s.top_p},
                   {"min_p", s.min_p},
                   {"repetition_penalty", s.repetition_penalty},
                   {"presence_penalty", s.presence_penalty},
                   {"frequency_penalty", s.frequency_penalty},
                   {"logit_bias", std::move(bias)},
                   {"seed", s.seed}};
  if (s.logprobs) json["logprobs"] = *s.logprobs;
  return json;
}

SamplingParameters sampling_from(const WireJson& json) {
  SamplingParameters s{.temperature        = json.at("temperature").get<double>(),
                       .top_k              = json.at("top_k").get<int64_t>(),
                       .top_p              = json.at("top_p").get<double>(),
                       .min_p              = json.at("min_p").get<double>(),
                       .repetition_penalty = json.at("repetition_penalty").get<double>(),
                       .presence_penalty   = json.at("presence_penalty").get<double>(),
                       .frequency_penalty  = json.at("frequency_penalty").get<double>(),
                       .seed               = json.at("seed").get<uint64_t>()};
  for (const WireJson& bias : json.at("logit_bias"))
    s.logit_bias[bias.at(0).get<model::TokenId>()] = bias.at(1).get<float>();
  if (json.contains("logprobs")) s.logprobs = json["logprobs"].get<int64_t>();
  return s;
}

// nlohmann's errors name the field that lacks or has another type.
template <class Parse>
auto parsed(Parse parse) -> Result<decltype(parse())> {
  try {
    return parse();
  } catch (const WireJson::exception& error) {
    return Error{fmt::format("a message between workers is not understood ({}): are they of one version?",
                             error.what())};
  }
}

}  // namespace

std::string_view name_of(WorkerRole role) { return kRoles[static_cast<size_t>(role)]; }

std::optional<WorkerRole> role_named(std::string_view name) {
  const auto at = std::find(std::begin(kRoles), std::end(kRoles), name);
  if (at == std::end(kRoles)) return {};
  return static_cast<WorkerRole>(at - std::begin(kRoles));
}

WireJson json_of(const engine::Request& request) {
  WireJson json = {{"prompt", request.prompt},
                   {"resumed", request.resumed},
                   {"sampling", wire_sampling(request.sampling)},
                   {"max_tokens", request.max_tokens},
                   {"min_tokens", request.min_tokens},
                   {"stop_ids", request.stop_ids},
                   {"priority", request.priority},
                   {"cache_salt", request.cache_salt}};
  if (request.do_remote_prefill) json["do_remote_prefill"] = *request.do_remote_prefill;
  if (request.constraint) {
    const auto* forwarded = dynamic_cast<const ForwardedConstraint*>(request.constraint.get());
    FATHOM_EXPECT(forwarded, "a constraint that goes to another process can be said in words");
    json["constraint"] = wire_constraint(forwarded->asked());
  }
  return json;
}

Result<ForwardedRequest> parse_request(const WireJson& json) {
  return parsed([&] {
    ForwardedRequest forwarded;
    forwarded.request = {.prompt     = json.at("prompt").get<std::vector<model::TokenId>>(),
                         .sampling   = sampling_from(json.at("sampling")),
                         .max_tokens = json.at("max_tokens").get<int64_t>(),
                         .min_tokens = json.at("min_tokens").get<int64_t>(),
                         .stop_ids   = json.at("stop_ids").get<std::vector<model::TokenId>>(),
                         .priority   = json.at("priority").get<int>(),
                         .cache_salt = json.at("cache_salt").get<std::string>(),
                         .constraint = nullptr,
                         .resumed    = json.at("resumed").get<std::vector<model::TokenId>>()};
    if (json.contains("do_remote_prefill"))
      forwarded.request.do_remote_prefill = json["do_remote_prefill"].get<bool>();
    if (json.contains("constraint")) forwarded.constraint = constraint_from(json["constraint"]);
    return forwarded;
  });
}

WireJson json_of(const WorkerOutput& output) {
  WireJson tokens = WireJson::array();
  for (const engine::Sampled& token : output.tokens) {
    WireJson one = {{"id", token.id}};
    if (token.logprob) {
      one["logprob"] = wire_logprob(*token.logprob);
      one["top"]     = WireJson::array();
      for (const auto& [id, logprob] : token.top) one["top"].push_back({id, wire_logprob(logprob)});
    }
    tokens.push_back(std::move(one));
  }
  WireJson json = {{"position", output.position},
                   {"tokens", std::move(tokens)},
                   {"cached", output.cached_tokens},
                   {"drafted", output.drafted},
                   {"accepted", output.accepted}};
  if (output.finish) json["finish"] = static_cast<int>(*output.finish);
  if (!output.error.empty()) json["error"] = output.error;
  return json;
}

Result<WorkerOutput> parse_output(std::string_view text) {
  return parsed([&] {
    const WireJson json = WireJson::parse(text);
    WorkerOutput output{.position      = json.at("position").get<int64_t>(),
                        .cached_tokens = json.at("cached").get<int64_t>(),
                        .drafted       = json.at("drafted").get<int64_t>(),
                        .accepted      = json.at("accepted").get<int64_t>()};
    for (const WireJson& one : json.at("tokens")) {
      engine::Sampled token{.id = one.at("id").get<model::TokenId>()};
      if (one.contains("logprob")) {
        token.logprob = logprob_from(one["logprob"]);
        for (const WireJson& top : one.at("top"))
          token.top.push_back({.id = top.at(0).get<model::TokenId>(), .logprob = logprob_from(top.at(1))});
      }
      output.tokens.push_back(std::move(token));
    }
    if (json.contains("finish")) {
      const int finish = json["finish"].get<int>();
      output.finish    = finish >= 0 && finish < engine::kFinishReasons ? static_cast<FinishReason>(finish)
                                                                        : FinishReason::error;
    }
    if (json.contains("error")) output.error = json["error"].get<std::string>();
    return output;
  });
}

WireJson json_of(const PrefillRequest& request) {
  WireJson slices = WireJson::array(), blocks = WireJson::array();
  for (const auto& [offset, bytes] : request.grant.slices) slices.push_back({offset, bytes});
  for (const KvBlock& block : request.blocks) blocks.push_back({static_cast<int>(block.kind), block.block});
  return {{"prompt", request.prompt},         {"cache_salt", request.cache_salt},
          {"layout", request.layout},         {"transfer", request.grant.tag.transfer},
          {"epoch", request.grant.tag.epoch}, {"slices", std::move(slices)},
          {"blocks", std::move(blocks)},      {"port", request.port},
          {"memory", request.memory}};
}

Result<PrefillRequest> parse_prefill(const WireJson& json) {
  auto result = parsed([&] {
    PrefillRequest request{.prompt     = json.at("prompt").get<std::vector<model::TokenId>>(),
                           .cache_salt = json.at("cache_salt").get<std::string>(),
                           .layout     = json.at("layout").get<std::string>(),
                           .port       = json.at("port").get<uint16_t>(),
                           .memory     = json.at("memory").get<std::string>()};
    request.grant.tag = {.transfer = json.at("transfer").get<uint64_t>(),
                         .epoch    = json.at("epoch").get<uint64_t>()};
    for (const WireJson& slice : json.at("slices"))
      request.grant.slices.push_back(
          {.offset = slice.at(0).get<uint64_t>(), .bytes = slice.at(1).get<uint64_t>()});
    for (const WireJson& block : json.at("blocks"))
      request.blocks.push_back({.kind  = block.at(0).get<int>() == 0 ? engine::kFull : engine::kWindow,
                                .block = block.at(1).get<int64_t>(),
                                .bytes = {}});
    return request;
  });
  if (result && result->blocks.size() != result->grant.slices.size())
    return Error{"a prefill request has a slice for each block"};
  return result;
}

WireJson json_of(const RoleAssignment& assignment) {
  return {{"role", name_of(assignment.role)}, {"peers", assignment.peers}};
}

Result<RoleAssignment> parse_assignment(const WireJson& json) {
  std::string role;
  auto result = parsed([&] {
    role = json.at("role").get<std::string>();
    return RoleAssignment{.peers = json.at("peers").get<std::vector<std::string>>()};
  });
  if (!result) return result;
  const auto named = role_named(role);
  if (!named || *named == WorkerRole::router)
    return Error{fmt::format("a worker cannot take on the role {:?}", role)};
  result->role = *named;
  return result;
}

std::string model_fingerprint(const model::Checkpoint& checkpoint) {
  uint64_t hash  = 0;
  const auto add = [&](const void* bytes, size_t size) { hash = XXH3_64bits_withSeed(bytes, size, hash); };
  for (const auto& [name, value] : model::fields_of(checkpoint.config)) {
    add(name.data(), name.size());
    add(value.data(), value.size());
  }
  for (const auto& [name, tensor] : checkpoint.tensors.tensors()) {
    add(name.data(), name.size());
    hash ^= tensor.bytes.size();
    // Samples, so that nothing reads 60 GB: a fine-tune may leave a tensor's beginning as it was.
    constexpr size_t kSamples = 64, kSampleBytes = 256;
    const size_t size = tensor.bytes.size(), last = size - std::min(size, kSampleBytes);
    for (size_t i = 0; i < kSamples; ++i) {
      const auto sample = tensor.bytes.subspan(last / (kSamples - 1) * i);
      add(sample.data(), std::min(sample.size(), kSampleBytes));
    }
  }
  return fmt::format("{:016x}", hash);
}

std::string kv_layout(const engine::Engine& engine) {
  const engine::EngineConfig& config = engine.config();
  return fmt::format("{} {} {} {} {} {} {}", model_fingerprint(engine.checkpoint()),
                     config.gpu ? "gpu" : "cpu", config.page_size, engine.kv_block_bytes(engine::kFull),
                     engine.kv_block_bytes(engine::kWindow), static_cast<int>(config.kv_dtype),
                     static_cast<int>(config.activation_dtype));
}

Status can_share_kv(const engine::Engine& engine, std::string_view flag) {
  if (engine.kv_block_bytes(engine::kFull) + engine.kv_block_bytes(engine::kWindow) == 0)
    return Error{
        fmt::format("the KV cache of {} cannot be moved to other workers: {} needs as many key-value "
                    "heads as ranks, or more",
                    engine.device_name(), flag)};
  if (!engine.config().prefix_cache || !engine.config().paged_kv)
    return Error{fmt::format(
        "blocks of other workers land in the prefix cache: {} needs it, and a paged KV cache", flag)};
  return Ok();
}

}  // namespace fathom::serve
