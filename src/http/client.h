// An HTTP/1.1 client of one server, with or without TLS: any number of concurrent requests on a few threads.
// Responses are passed on as they arrive.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "http/http.h"

namespace fathom::http {

// Of "http://host:port/prefix", or https.
struct Url {
  bool tls         = false;
  std::string host = "127.0.0.1";
  uint16_t port    = 80;  // https: 443 where the text has none
  std::string prefix;     // before every path: "" or "/proxy", never with a '/' at its end
};
Result<Url> parse_url(std::string_view text);
std::string to_string(const Url& url);

// What is asked of a TLS server's certificate. `verified`: it is for the host of the Url and signed by one of
// the system's authorities; OpenSSL's variables SSL_CERT_FILE and SSL_CERT_DIR name others. `any`: nothing.
enum class Certificate { verified, any };

struct ClientRequest {
  std::string method = "GET";
  std::string target = "/";  // path and query
  std::vector<Header> headers;
  std::string body;
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);  // from start() to the last byte
};

// Receives one response, in order and one call at a time, on one of the client's threads. Sinks of other
// responses run concurrently. The functions must not throw or block.
struct ResponseSink {
  using Clock = std::chrono::steady_clock;
  std::function<void(int status)> status;
  // A piece of the body, without chunk framing, and the time at which it was read.
  std::function<void(Clock::time_point at, std::string_view piece)> body;
  // `error` is "" where the response is complete, otherwise one sentence.
  std::function<void(Clock::time_point at, std::string error)> end;
};

struct ClientResponse {
  int status = 0;
  std::string body;
};

class Client {
 public:
  // An error where the host name cannot be resolved. The first request shows whether anybody listens.
  static Result<std::unique_ptr<Client>> open(const Url& url, int threads = 2,
                                              Certificate certificate = Certificate::verified);
  ~Client();  // calls stop()

  // Returns at once. Connections are kept and reused. If the server had closed a kept connection, the request
  // is repeated on a new one.
  void start(ClientRequest call, ResponseSink sink);

  // Waits for the complete response. An error where none came, or more than 16 MiB; every status is a
  // response.
  Result<ClientResponse> fetch(ClientRequest call);

  // Closes all connections. No sink is called after it returns; sinks of unfinished responses get no end().
  void stop();

 private:
  struct State;
  explicit Client(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace fathom::http
