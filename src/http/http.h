// HTTP as the API sees it: a complete request, and the exchange that answers it. Below it is a socket
// (server.h) or a test (fake_exchange.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::http {

struct Header {
  std::string name, value;
};

struct Request {
  std::string method;  // "GET"
  std::string path;    // of the target, percent-decoded: "/v1/models"
  std::string query;   // after '?', not decoded
  std::vector<Header> headers;
  std::string body;
  std::string peer;  // "127.0.0.1:41022"

  // The first header of that name, in any letter case; "" where there is none.
  std::string_view header(std::string_view name) const;
};

// Sent by a stream that has been silent for `after`. Proxies close silent connections, and a client that
// vanished is noticed because it confirms no bytes.
struct Ping {
  std::string piece;
  std::chrono::milliseconds after;
};

// One request being answered: either respond() once, or begin_stream(), any number of write(), end(). All
// functions may be called from any thread and return at once. After the client has left they do nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual void respond(int status, std::vector<Header> headers, std::string body) = 0;
  virtual void begin_stream(int status, std::vector<Header> headers,
                            std::optional<Ping> ping)                             = 0;  // chunked
  virtual void write(std::string piece)                                           = 0;
  virtual void end()                                                              = 0;

  // Runs `work` on the connection's strand, one at a time and in the order of the calls. Streams format their
  // events there, not on the engine's thread. Work posted after the client has left still runs.
  virtual void post(std::function<void()> work) = 0;
  // Runs `gone` on the strand, once, if the client leaves or is dropped before the answer is complete. Set it
  // before the handler returns.
  virtual void on_gone(std::function<void()> gone) = 0;
};

// Called on the connection's strand. It must not throw or block, and it may keep the exchange.
using Handler = std::function<void(Request, std::shared_ptr<Exchange>)>;

}  // namespace fathom::http
