#include "serve/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/expect.h"
#include "http/sse.h"
#include "serve/bearer_token.h"
#include "serve/random_id.h"
#include "serve/request_context.h"
#include "serve/routes.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxRequestIdBytes = 128;

// Adds the headers that every response has, and counts responses.
class CountedExchange : public http::Exchange {
 public:
  CountedExchange(std::shared_ptr<http::Exchange> inner, std::vector<http::Header> headers, std::string path,
                  ServeMetrics* metrics)
      : inner_(std::move(inner)), headers_(std::move(headers)), path_(std::move(path)), metrics_(metrics) {}

  void respond(int status, std::vector<http::Header> headers, std::string body) override {
    inner_->respond(status, counted(status, std::move(headers)), std::move(body));
  }
  void begin_stream(int status, std::vector<http::Header> headers, std::optional<http::Ping> ping) override {
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
  std::vector<http::Header> counted(int status, std::vector<http::Header> headers) const {
    if (metrics_) metrics_->responded(path_, status);
    headers.insert(headers.end(), headers_.begin(), headers_.end());
    return headers;
  }

  const std::shared_ptr<http::Exchange> inner_;
  const std::vector<http::Header> headers_;
  const std::string path_;
  ServeMetrics* const metrics_;
};

bool is_json(std::string_view content_type) {
  std::string type(content_type.substr(0, content_type.find(';')));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.pop_back();
  std::transform(type.begin(), type.end(), type.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return type == "application/json" || (type.starts_with("application/") && type.ends_with("+json"));
}

// The client's id where it is safe in headers and logs; otherwise a random one.
std::string request_id_of(const http::Request& request) {
  const std::string_view given = request.header("X-Request-Id");
  const bool usable            = !given.empty() && given.size() <= kMaxRequestIdBytes &&
                      std::all_of(given.begin(), given.end(), [](char c) {
                        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                               std::string_view("-_.:").find(c) != std::string_view::npos;
                      });
  return usable ? std::string(given) : new_id("");
}

}  // namespace

Api::Api(ApiOptions options) : options_(std::move(options)) {
  FATHOM_EXPECT(!options_.model_names.empty(), "the API needs the name of the model it serves");
}

Api::~Api() = default;

http::Handler Api::handler() {
  return [this](http::Request request, std::shared_ptr<http::Exchange> exchange) {
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

// The headers of every response.
std::vector<http::Header> Api::headers_for(const http::Request& request,
                                           const std::string& request_id) const {
  std::vector<http::Header> headers = {{"X-Request-Id", request_id}};
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

void Api::handle(http::Request request, std::shared_ptr<http::Exchange> exchange) const {
  const ApiModel* model  = loaded_;
  std::string request_id = request_id_of(request);
  auto headers           = headers_for(request, request_id);
  exchange = std::make_shared<CountedExchange>(std::move(exchange), std::move(headers), request.path,
                                               model ? model->metrics : nullptr);
  const RequestContext context{.request        = std::move(request),
                               .exchange       = std::move(exchange),
                               .options        = options_,
                               .model          = model,
                               .server_started = started_,
                               .request_id     = std::move(request_id)};
  const std::string& method = context.request.method;
  const Route* route        = find_route(context.request.path);
  if (!route)
    return context.refuse(
        {.status  = 404,
         .type    = "NotFoundError",
         .message = fmt::format("there is no {} here: see /openapi.json", context.request.path)});
  const std::string allow = route->method == "GET" ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
  if (method == "OPTIONS") {
    // Allows every header that the browser asks for: client libraries add their own (OpenAI's a dozen), and
    // they are harmless. "*" would not cover Authorization.
    const std::string_view wanted = context.request.header("Access-Control-Request-Headers");
    return context.exchange->respond(204,
                                     {{"Allow", allow},
                                      {"Access-Control-Allow-Methods", allow},
                                      {"Access-Control-Allow-Headers", std::string(wanted)},
                                      {"Access-Control-Max-Age", "600"}},
                                     "");
  }
  const std::string& key = route->admin ? options_.admin_api_key : options_.api_key;
  if (!route->open && !key.empty() && !has_bearer_token(context.request, key))
    return context.refuse({.status  = 401,
                           .type    = "AuthenticationError",
                           .message = fmt::format("this server wants its {} in the header `Authorization: "
                                                  "Bearer KEY`",
                                                  route->admin ? "admin's key" : "key")});
  if (method != route->method && !(method == "HEAD" && route->method == "GET")) {
    const ApiError error{.status  = 405,
                         .type    = "MethodNotAllowedError",
                         .message = fmt::format("{} takes {}, not {}", context.request.path, allow, method)};
    return context.exchange->respond(405, {{"Content-Type", "application/json"}, {"Allow", allow}},
                                     http::text_of(error_json(error)));
  }
  if (route->admin && key.empty())
    return context.refuse({.status  = 404,
                           .type    = "NotFoundError",
                           .message = fmt::format("{} is for an admin: start the server with --admin-api-key",
                                                  context.request.path)});
  if (route->needs != Route::Needs::nothing && !context.model)
    return context.refuse({.status  = 503,
                           .type    = "unavailable_error",
                           .message = "the model is being loaded: try again in a moment"});
  if (route->needs == Route::Needs::ready && draining_)
    return context.refuse({.status  = 503,
                           .type    = "unavailable_error",
                           .message = "the server is going down and takes no new requests"});
  if (const auto type = context.request.header("Content-Type");
      method == "POST" && !type.empty() && !is_json(type))
    return context.refuse({.status  = 415,
                           .type    = "UnsupportedMediaTypeError",
                           .message = fmt::format("the body is {}, but should be application/json", type)});
  route->handler(context);
}

}  // namespace fathom::serve
