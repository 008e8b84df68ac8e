// The HTTP API: OpenAI's chat completions, completions and responses, vLLM's and llama.cpp's additions, and
// what operators ask (specs/serving.md section 2). GET /openapi.json describes it.
//
// Open to all are /health, /v1/health, /ping, /live, /ready, the page at / and /openapi.json. Everything
// else, /metrics and /stats too, wants `Authorization: Bearer KEY` where a key is set.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/generator.h"
#include "model/checkpoint.h"
#include "serve/api_request.h"
#include "serve/http.h"
#include "serve/metrics.h"

namespace fathom::serve {

struct ConstraintRequest;

// What is served, once it is loaded. What it refers to must outlive the Api and every exchange.
struct ApiModel {
  engine::Generator& generator;
  const model::Checkpoint& checkpoint;  // with a tokenizer
  GenerationDefaults defaults = {};     // generation_config.json's
  std::string current_date    = "";     // "2025-06-28" for gpt-oss's system message; "" for none
  // For response_format and forced tool calls; an error is the client's.
  std::function<Result<std::unique_ptr<engine::Constraint>>(const ConstraintRequest&)> constraint;
  ServeMetrics* metrics = nullptr;  // is told of what happens; may be null
};

struct ApiOptions {
  std::vector<std::string> model_names;  // at least one; the first is the one that replies give
  std::string api_key;                   // "": none is asked for
  // Of pages elsewhere that may call from a browser: "https://example.org", or "*" for all.
  std::vector<std::string> allowed_origins;
  std::string version;
  std::string page, openapi;  // GET / and /openapi.json
};

class Api {
 public:
  explicit Api(ApiOptions options);
  ~Api();

  // The Api must outlive it. Until ready() it answers 503 where a model is needed.
  HttpHandler handler();

  // Each once, in this order, from any thread.
  void ready(ApiModel model);
  void drain();  // no new generation from now on: 503, from /ready too

 private:
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) const;
  bool authorized(const HttpRequest& request) const;
  std::vector<HttpHeader> headers_for(const HttpRequest& request, const std::string& request_id) const;

  const ApiOptions options_;
  const std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
  std::unique_ptr<const ApiModel> model_;
  std::atomic<const ApiModel*> loaded_ = nullptr;  // model_, once it is there
  std::atomic<bool> draining_          = false;
};

}  // namespace fathom::serve
