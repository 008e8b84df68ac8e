// What the processes of a disaggregated server say to each other: engine requests and outputs as JSON, over
// HTTP (docs/serving.md, "Disaggregated prefill and decode").
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "engine/generator.h"
#include "engine/kv_block.h"
#include "model/checkpoint.h"
#include "serve/structured_output.h"
#include "transfer/transfer.h"

namespace fathom::engine {
class Engine;
}

namespace fathom::serve {

// What a process does. `router`: it has no engine.
enum class WorkerRole { prefill, decode, both, router };
std::string_view name_of(WorkerRole role);
std::optional<WorkerRole> role_named(std::string_view name);

// A constraint on its way to the engine that applies it. It restricts nothing itself.
class ForwardedConstraint final : public engine::Constraint {
 public:
  explicit ForwardedConstraint(ConstraintRequest asked) : asked_(std::move(asked)) {}
  std::unique_ptr<engine::Constraint> clone() const override {
    return std::make_unique<ForwardedConstraint>(*this);
  }
  void mask_logits(std::span<float>) override {}
  void accept_token(model::TokenId) override {}
  const ConstraintRequest& asked() const { return asked_; }

 private:
  ConstraintRequest asked_;
};

// A request without its functions. A constraint must be a ForwardedConstraint.
nlohmann::ordered_json json_of(const engine::Request& request);
struct ForwardedRequest {
  engine::Request request;  // without a constraint
  std::optional<ConstraintRequest> constraint;
};
// These fail where a field lacks or has a wrong type: then both ends are of different versions.
Result<ForwardedRequest> parse_request(const nlohmann::ordered_json& json);

// A step's output for one request. `position`: of its first token in the answer, resumed tokens included.
struct WorkerOutput {
  int64_t position = 0;
  std::vector<engine::Sampled> tokens;
  std::optional<engine::FinishReason> finish;
  std::string error;
  int64_t cached_tokens = 0, drafted = 0, accepted = 0;
};
nlohmann::ordered_json json_of(const WorkerOutput& output);
Result<WorkerOutput> parse_output(std::string_view text);

// Asks a prefill worker for the keys and values of a prompt.
struct PrefillRequest {
  std::vector<model::TokenId> prompt;
  std::string cache_salt, layout;
  transfer::Grant grant;
  std::vector<engine::KvBlock> blocks;  // of each slice of the grant; without bytes
  uint16_t port = 0;                    // of the landing server, on the host that asks
  std::string memory;                   // transfer::Address::memory
};
nlohmann::ordered_json json_of(const PrefillRequest& request);
Result<PrefillRequest> parse_prefill(const nlohmann::ordered_json& json);

// From the router to a worker whose role changes: what it does now, and whom it asks for prefills. What it
// has begun it ends.
struct RoleAssignment {
  WorkerRole role = WorkerRole::both;  // not router
  std::vector<std::string> peers;      // addresses of prefill workers
};
nlohmann::ordered_json json_of(const RoleAssignment& assignment);
Result<RoleAssignment> parse_assignment(const nlohmann::ordered_json& json);

// Equal for the same weights.
std::string model_fingerprint(const model::Checkpoint& checkpoint);
// Equal for engines whose blocks are interchangeable: the same weights and pages, in the same types.
std::string kv_layout(const engine::Engine& engine);
// Whether blocks of this engine can go to others, and theirs come here; `flag` is named in the error.
Status can_share_kv(const engine::Engine& engine, std::string_view flag);

}  // namespace fathom::serve
