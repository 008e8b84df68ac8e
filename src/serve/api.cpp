#include "serve/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/expect.h"
#include "serve/api_call.h"
#include "serve/chat_prompt.h"
#include "serve/sse.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kModelPath   = "/v1/models/";
constexpr std::string_view kRetryAfterS = "1";
constexpr size_t kLongestRequestId      = 128;

// Adds to the answer what every answer has, and counts it.
class CountedExchange : public HttpExchange {
 public:
  CountedExchange(std::shared_ptr<HttpExchange> inner, std::vector<HttpHeader> headers, std::string path,
                  ServeMetrics* metrics)
      : inner_(std::move(inner)), headers_(std::move(headers)), path_(std::move(path)), metrics_(metrics) {}

  void respond(int status, std::vector<HttpHeader> headers, std::string body) override {
    inner_->respond(status, counted(status, std::move(headers)), std::move(body));
  }
  void begin_stream(int status, std::vector<HttpHeader> headers, std::optional<Ping> ping) override {
    inner_->begin_stream(status, counted(status, std::move(headers)), std::move(ping));
  }
  void write(std::string piece) override { inner_->write(std::move(piece)); }
  void end() override { inner_->end(); }
  void post(std::function<void()> work) override { inner_->post(std::move(work)); }
  void on_gone(std::function<void()> gone) override {
    inner_->on_gone([metrics = metrics_, gone = std::move(gone)] {
      if (metrics) metrics->client_disconnected();
      gone();
    });
  }

 private:
  std::vector<HttpHeader> counted(int status, std::vector<HttpHeader> headers) const {
    if (metrics_) metrics_->responded(path_, status);
    headers.insert(headers.end(), headers_.begin(), headers_.end());
    return headers;
  }

  const std::shared_ptr<HttpExchange> inner_;
  const std::vector<HttpHeader> headers_;
  const std::string path_;
  ServeMetrics* const metrics_;
};

void health(const ApiCall& call) {
  if (!call.model)
    return call.refuse({.status = 503, .type = "unavailable_error", .message = "the model is being loaded"});
  call.respond({{"status", "ok"}});
}

void live(const ApiCall& call) { call.respond({{"status", "ok"}}); }

void readiness(const ApiCall& call) { call.respond({{"status", "ready"}}); }

void version(const ApiCall& call) { call.respond({{"version", call.options.version}}); }

void page(const ApiCall& call) {
  call.exchange->respond(200,
                         {{"Content-Type", "text/html; charset=utf-8"},
                          {"X-Frame-Options", "DENY"},
                          {"Content-Security-Policy", "frame-ancestors 'none'"}},
                         call.options.page);
}

void openapi(const ApiCall& call) {
  call.exchange->respond(200, {{"Content-Type", "application/json"}}, call.options.openapi);
}

void metrics(const ApiCall& call) {
  if (!call.model->metrics)
    return call.refuse({.status = 404, .type = "NotFoundError", .message = "this server counts nothing"});
  call.exchange->respond(200, {{"Content-Type", std::string(ServeMetrics::kContentType)}},
                         call.model->metrics->text(call.model->generator.stats()));
}

void stats(const ApiCall& call) {
  const engine::GeneratorStats stats = call.model->generator.stats();
  const auto uptime                  = std::chrono::system_clock::now() - call.server_started;
  Json finished                      = Json::object();
  for (int reason = 0; reason < engine::kFinishReasons; ++reason)
    finished[std::string(name_of(static_cast<engine::FinishReason>(reason)))] = stats.finished[reason];
  Json body = {{"model", call.options.model_names.front()},
               {"uptime_s", std::chrono::duration<double>(uptime).count()},
               {"max_context", call.model->generator.max_context()},
               {"running", stats.running},
               {"waiting", stats.waiting},
               {"waiting_tokens", stats.waiting_tokens},
               {"pages", stats.pages},
               {"pages_in_use", stats.pages_in_use},
               {"prompt_tokens", stats.prompt_tokens},
               {"generated_tokens", stats.generated_tokens},
               {"prefix_queried_tokens", stats.prefix_queried_tokens},
               {"prefix_hit_tokens", stats.prefix_hit_tokens},
               {"preemptions", stats.preemptions},
               {"steps", stats.steps},
               {"step_rows", stats.step_rows},
               {"drafted_tokens", stats.drafted_tokens},
               {"accepted_tokens", stats.accepted_tokens},
               {"schedule_s", stats.schedule_s},
               {"forward_s", stats.forward_s},
               {"sample_s", stats.sample_s},
               {"finished", std::move(finished)}};
  if (const ServeMetrics* counted = call.model->metrics)
    if (const auto ttft = counted->median_time_to_first_token_s()) body["ttft_p50_s"] = *ttft;
  call.respond(body);
}

Json model_json(const ApiCall& call, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created",
           std::chrono::duration_cast<std::chrono::seconds>(call.server_started.time_since_epoch()).count()},
          {"owned_by", "fathom"},
          {"root", name},
          {"parent", nullptr},
          {"max_model_len", call.model->generator.max_context()},
          {"permission", Json::array()}};
}

void models(const ApiCall& call) {
  Json list = {{"object", "list"}, {"data", Json::array()}};
  for (const std::string& name : call.options.model_names) list["data"].push_back(model_json(call, name));
  call.respond(list);
}

void one_model(const ApiCall& call) {
  const std::string name = call.request.path.substr(kModelPath.size());
  if (const auto error = call.check_model(name)) return call.refuse(*error);
  call.respond(model_json(call, name));
}

// What must be there before a route can answer.
enum class Needs { nothing, model, ready };

struct Route {
  std::string_view method, path;
  void (*answer)(const ApiCall&);
  Needs needs = Needs::model;
  bool open   = false;  // without a key
};

constexpr std::array kRoutes = {
    Route{"POST", "/v1/chat/completions", chat_completions, Needs::ready},
    Route{"POST", "/v1/completions", completions, Needs::ready},
    Route{"POST", "/v1/responses", responses, Needs::ready},
    Route{"POST", "/tokenize", tokenize},
    Route{"POST", "/v1/tokenize", tokenize},
    Route{"POST", "/detokenize", detokenize},
    Route{"POST", "/v1/detokenize", detokenize},
    Route{"GET", "/v1/models", models},
    Route{"GET", kModelPath, one_model},
    Route{"GET", "/stats", stats},
    Route{"GET", "/metrics", metrics},
    Route{"GET", "/version", version, Needs::nothing},
    Route{"GET", "/health", health, Needs::nothing, true},
    Route{"GET", "/v1/health", health, Needs::nothing, true},
    Route{"GET", "/ping", live, Needs::nothing, true},
    Route{"GET", "/live", live, Needs::nothing, true},
    Route{"GET", "/ready", readiness, Needs::ready, true},
    Route{"GET", "/", page, Needs::nothing, true},
    Route{"GET", "/openapi.json", openapi, Needs::nothing, true},
};

const Route* route_of(std::string_view path) {
  const auto route = std::find_if(kRoutes.begin(), kRoutes.end(), [&](const Route& route) {
    return route.path == path ||
           (route.path == kModelPath && path.starts_with(kModelPath) && path.size() > kModelPath.size());
  });
  return route == kRoutes.end() || path == kModelPath ? nullptr : &*route;
}

bool is_json(std::string_view content_type) {
  std::string type(content_type.substr(0, content_type.find(';')));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.pop_back();
  std::transform(type.begin(), type.end(), type.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return type == "application/json" || (type.starts_with("application/") && type.ends_with("+json"));
}

// The client's, where it can stand in a header, a log line and an id; else one of ours.
std::string request_id_of(const HttpRequest& request) {
  const std::string_view given = request.header("X-Request-Id");
  const bool usable            = !given.empty() && given.size() <= kLongestRequestId &&
                      std::all_of(given.begin(), given.end(), [](char c) {
                        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                               std::string_view("-_.:").find(c) != std::string_view::npos;
                      });
  return usable ? std::string(given) : new_id("");
}

// In a time that does not tell how much of it was right.
bool equal_in_constant_time(std::string_view given, std::string_view secret) {
  unsigned char difference = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i] ^ secret[i % secret.size()]);
  return difference == 0;
}

}  // namespace

void ApiCall::respond(const Json& body, int status) const {
  exchange->respond(status, {{"Content-Type", "application/json"}}, text_of(body));
}

void ApiCall::refuse(const ApiError& error) const {
  std::vector<HttpHeader> headers = {{"Content-Type", "application/json"}};
  if (error.status == 429 || error.status == 503)
    headers.push_back({"Retry-After", std::string(kRetryAfterS)});
  if (error.status == 401) headers.push_back({"WWW-Authenticate", "Bearer"});
  exchange->respond(error.status, std::move(headers), text_of(error_json(error)));
}

std::optional<ApiError> ApiCall::check_model(const std::string& name) const {
  const auto& names = options.model_names;
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return std::nullopt;
  return ApiError{
      .status  = 404,
      .type    = "NotFoundError",
      .message = fmt::format("the model '{}' is not served here, but '{}' is", name, names.front()),
      .param   = "model"};
}

ServedModel ApiCall::served() const {
  return {.vocab_size  = model->checkpoint.config.vocab_size,
          .max_context = model->generator.max_context(),
          .defaults    = model->defaults};
}

ApiResult<std::vector<model::TokenId>> ApiCall::prompt_of(const ChatRequest& chat) const {
  const model::Checkpoint& checkpoint = model->checkpoint;
  const auto messages                 = chat_prompt(chat, {.harmony       = checkpoint.harmony.has_value(),
                                                           .system_prompt = checkpoint.system_prompt,
                                                           .current_date  = model->current_date});
  if (const auto* error = std::get_if<ApiError>(&messages)) return *error;
  auto ids = render_harmony(*checkpoint.tokenizer, checkpoint.harmony.value(), std::get<0>(messages));
  if (!ids) return bad_request("messages", ids.error().message);
  return std::move(*ids);
}

Api::Api(ApiOptions options) : options_(std::move(options)) {
  FATHOM_EXPECT(!options_.model_names.empty(), "the API needs the name of the model it serves");
}

Api::~Api() = default;

HttpHandler Api::handler() {
  return [this](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
    handle(std::move(request), std::move(exchange));
  };
}

void Api::ready(ApiModel model) {
  FATHOM_EXPECT(!model_, "the API serves one model");
  FATHOM_EXPECT(model.checkpoint.tokenizer, "the API needs a checkpoint with a tokenizer");
  model_  = std::make_unique<const ApiModel>(std::move(model));
  loaded_ = model_.get();
}

void Api::drain() { draining_ = true; }

bool Api::authorized(const HttpRequest& request) const {
  constexpr std::string_view kScheme = "bearer ";
  std::string_view given             = request.header("Authorization");
  const bool bearer =
      given.size() > kScheme.size() && std::equal(kScheme.begin(), kScheme.end(), given.begin(),
                                                  [](char a, char b) { return a == (b | 0x20); });
  if (!bearer) return false;
  given.remove_prefix(kScheme.size());
  return equal_in_constant_time(given.substr(std::min(given.find_first_not_of(' '), given.size())),
                                options_.api_key);
}

// Of every answer.
std::vector<HttpHeader> Api::headers_for(const HttpRequest& request, const std::string& request_id) const {
  std::vector<HttpHeader> headers = {{"X-Request-Id", request_id}};
  const std::string origin(request.header("Origin"));
  const auto allowed = [&](const std::string& one) {
    return std::find(options_.allowed_origins.begin(), options_.allowed_origins.end(), one) !=
           options_.allowed_origins.end();
  };
  if (options_.allowed_origins.empty()) return headers;
  headers.push_back({"Vary", "Origin"});
  if (origin.empty() || !(allowed("*") || allowed(origin))) return headers;
  headers.push_back({"Access-Control-Allow-Origin", allowed("*") ? "*" : origin});
  headers.push_back({"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"});
  return headers;
}

void Api::handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) const {
  const ApiModel* model  = loaded_;
  std::string request_id = request_id_of(request);
  auto headers           = headers_for(request, request_id);
  exchange = std::make_shared<CountedExchange>(std::move(exchange), std::move(headers), request.path,
                                               model ? model->metrics : nullptr);
  const ApiCall call{.request        = std::move(request),
                     .exchange       = std::move(exchange),
                     .options        = options_,
                     .model          = model,
                     .server_started = started_,
                     .request_id     = std::move(request_id)};
  const std::string& method = call.request.method;
  const Route* route        = route_of(call.request.path);
  if (!route)
    return call.refuse({.status  = 404,
                        .type    = "NotFoundError",
                        .message = fmt::format("there is no {} here: see /openapi.json", call.request.path)});
  const std::string allow = route->method == "GET" ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
  if (method == "OPTIONS") {
    // Whatever the page's library adds, OpenAI's a dozen of its own, does no harm; "*" would leave out the
    // key.
    const std::string_view wanted = call.request.header("Access-Control-Request-Headers");
    return call.exchange->respond(204,
                                  {{"Allow", allow},
                                   {"Access-Control-Allow-Methods", allow},
                                   {"Access-Control-Allow-Headers", std::string(wanted)},
                                   {"Access-Control-Max-Age", "600"}},
                                  "");
  }
  if (!route->open && !options_.api_key.empty() && !authorized(call.request))
    return call.refuse({.status  = 401,
                        .type    = "AuthenticationError",
                        .message = "this server wants its key in the header `Authorization: Bearer KEY`"});
  if (method != route->method && !(method == "HEAD" && route->method == "GET")) {
    const ApiError error{.status  = 405,
                         .type    = "MethodNotAllowedError",
                         .message = fmt::format("{} takes {}, not {}", call.request.path, allow, method)};
    return call.exchange->respond(405, {{"Content-Type", "application/json"}, {"Allow", allow}},
                                  text_of(error_json(error)));
  }
  if (route->needs != Needs::nothing && !call.model)
    return call.refuse({.status  = 503,
                        .type    = "unavailable_error",
                        .message = "the model is being loaded: try again in a moment"});
  if (route->needs == Needs::ready && draining_)
    return call.refuse({.status  = 503,
                        .type    = "unavailable_error",
                        .message = "the server is going down and takes no new requests"});
  if (const auto type = call.request.header("Content-Type");
      method == "POST" && !type.empty() && !is_json(type))
    return call.refuse({.status  = 415,
                        .type    = "UnsupportedMediaTypeError",
                        .message = fmt::format("the body is {}, but should be application/json", type)});
  route->answer(call);
}

}  // namespace fathom::serve
