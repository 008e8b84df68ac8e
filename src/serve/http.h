// HTTP as the API sees it: a request that has arrived whole, and the exchange in which it is answered. What
// lies below (http_server.h) may be a socket or a test.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::serve {

struct HttpHeader {
  std::string name, value;
};

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // of the target, percent-decoded: "/v1/models"
  std::string query;   // after '?', as it came
  std::vector<HttpHeader> headers;
  std::string body;
  std::string peer;  // "127.0.0.1:41022"

  // The first of that name, letter case aside; "" where there is none.
  std::string_view header(std::string_view name) const;
};

// What a stream says, every so often, while it has nothing to say: proxies close connections that are silent,
// and a client that vanished shows in that it takes no bytes.
struct Ping {
  std::string piece;
  std::chrono::milliseconds after;  // of silence
};

// One request being answered: either respond() once, or begin_stream(), write() any number of times, end().
// All functions may be called from any thread and return at once; after the client has gone they do nothing.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual void respond(int status, std::vector<HttpHeader> headers, std::string body) = 0;
  virtual void begin_stream(int status, std::vector<HttpHeader> headers,
                            std::optional<Ping> ping)                                 = 0;  // chunked
  virtual void write(std::string piece)                                               = 0;
  virtual void end()                                                                  = 0;

  // Runs `work` on the connection's own executor: one at a time, in the order of post(). Streams do their
  // formatting there, not on the engine's thread. Work posted after the client has gone still runs.
  virtual void post(std::function<void()> work) = 0;
  // `gone` runs there too, once, if the client leaves (or is dropped because it does not read) before the
  // answer is whole. Set it before the handler returns.
  virtual void on_gone(std::function<void()> gone) = 0;
};

// Called on the connection's executor. It must not throw and must not block; it may keep the exchange.
using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpExchange>)>;

}  // namespace fathom::serve
