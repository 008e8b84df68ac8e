// HTTP/1.1 to one server: any number of calls at once on a few threads, answers handed on as they come.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "serve/http.h"

namespace fathom::serve {

// Of "http://host:port/prefix". There is no TLS here: https is an error that says so.
struct HttpUrl {
  std::string host = "127.0.0.1";
  uint16_t port    = 80;
  std::string prefix;  // before every path; "" or "/proxy", never ending in '/'
};
Result<HttpUrl> parse_http_url(std::string_view text);

struct HttpCall {
  std::string method = "GET";
  std::string target = "/";  // path and query
  std::vector<HttpHeader> headers;
  std::string body;
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);  // from start() to the last byte
};

// Told of one answer, in order and one at a time, on one of the client's threads; other calls' sinks run
// beside it. No function may throw or block.
struct HttpSink {
  using Clock = std::chrono::steady_clock;
  std::function<void(int status)> status;
  // When the bytes were read, and they, without chunk framing.
  std::function<void(Clock::time_point at, std::string_view piece)> body;
  // `error` is "" when the answer came whole, else one sentence.
  std::function<void(Clock::time_point at, std::string error)> end;
};

struct HttpReply {
  int status = 0;
  std::string body;
};

class HttpClient {
 public:
  // An error when the host's name leads nowhere; whether anybody listens shows with the first call.
  static Result<std::unique_ptr<HttpClient>> open(const HttpUrl& url, int threads = 2);
  ~HttpClient();  // as stop()

  // Returns at once; connections are kept and used again. A kept one that the server had closed meanwhile is
  // replaced without a word.
  void start(HttpCall call, HttpSink sink);

  // Waits for the whole answer. An error when none came, or more than 16 MiB of it; any status is an answer.
  Result<HttpReply> fetch(HttpCall call);

  // Closes all connections. No sink is called after it returns; answers under way never end.
  void stop();

 private:
  struct State;
  explicit HttpClient(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace fathom::serve
