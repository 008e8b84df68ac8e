// The HTTP API: OpenAI's chat completions, completions and responses, with vLLM's and llama.cpp's additions,
// and routes for operators. routes.cpp lists the routes, GET /openapi.json describes them, docs/serving.md
// explains them.
//
// /health, /v1/health, /ping, /live, /ready, the page at / and /openapi.json are open to all. If an API key
// is set, everything else, including /metrics and /stats, requires `Authorization: Bearer KEY`. Routes of the
// admin require a key of their own; without one they do not exist.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/config.h"
#include "engine/generator.h"
#include "engine/weight_update.h"
#include "http/http.h"
#include "model/checkpoint.h"
#include "serve/generation_options.h"
#include "serve/gpu_monitor.h"
#include "serve/metrics.h"

namespace fathom::serve {

struct ConstraintRequest;
struct RequestContext;

// The loaded model. Everything it refers to must outlive the Api and all exchanges.
struct ApiModel {
  engine::Generator& generator;
  const model::Checkpoint& checkpoint;  // has a tokenizer
  GenerationDefaults defaults = {};     // from generation_config.json
  std::string current_date    = "";     // "2025-06-28" for gpt-oss's system message; "" for none
  // Makes constraints for response_format and forced tool calls. An error is the client's fault.
  std::function<Result<std::unique_ptr<engine::Constraint>>(const ConstraintRequest&)> constraint;
  ServeMetrics* metrics = nullptr;  // may be null
  GpuMonitor* gpus      = nullptr;  // null: /metrics has no GPU
  // An engine that has work and ended no step for longer fails /health.
  std::chrono::milliseconds iteration_timeout{60'000};
  // Answers the routes of workers; null: this process works for no other.
  std::function<void(const RequestContext&)> worker = {};
  // Engine::update_weights; null: the generator has no weights of its own.
  std::function<Status(engine::WeightUpdate, engine::WeightUpdater::Done)> update_weights = {};
};

enum class ProfileFormat { pprof, folded };

struct ApiOptions {
  std::vector<std::string> model_names;  // at least one; responses name the first
  // Adapters of that model: names of models to clients (EngineConfig::lora_modules).
  std::vector<engine::EngineConfig::LoraModule> lora_modules = {};
  std::string api_key;        // "": no key is required
  std::string admin_api_key;  // "": the admin's routes do not exist
  // Origins of pages elsewhere that browsers may call from (CORS): "https://example.org", or "*" for all.
  std::vector<std::string> allowed_origins;
  std::string version;
  std::string page, openapi;  // GET / and /openapi.json
  // Profiles this process for so many seconds, then calls back with the file's contents, on any thread.
  // Returns what cancels it, from any thread. Null: it cannot. An error: too many are being made.
  using CpuProfile =
      std::function<Result<std::function<void()>>(double, ProfileFormat, std::function<void(std::string)>)>;
  CpuProfile cpu_profile = {};
};

class Api {
 public:
  explicit Api(ApiOptions options);
  ~Api();

  // The Api must outlive the handler. Until ready(), routes that need a model answer 503.
  http::Handler handler();

  // Each is called once, in this order, from any thread.
  void ready(ApiModel model);
  void drain();  // refuses new generations from now on: 503, also from /ready

 private:
  void handle(http::Request request, std::shared_ptr<http::Exchange> exchange) const;
  std::vector<http::Header> headers_for(const http::Request& request, const std::string& request_id) const;

  const ApiOptions options_;
  const std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
  std::unique_ptr<const ApiModel> model_;
  std::atomic<const ApiModel*> loaded_ = nullptr;  // null until ready(), then model_.get()
  std::atomic<bool> draining_          = false;
};

}  // namespace fathom::serve
