// HTTP/1.1 on a port (RFC 9112): connections in, requests to the handler, answers out. A connection is one
// coroutine on a few shared threads; open and idle it costs a few KiB.
//
// Whoever sends nonsense, too much or too slowly is told so in JSON, {"error": {"message", "type", "param",
// "code"}}, and the connection closed: 400 malformed, 408 too slow, 413 body and 431 head too large, 501
// transfer encodings but chunked, 503 too many connections, and 500 where the handler threw, or dropped the
// exchange without an answer.
//
// A client that closes its sending side counts as gone: closing both looks the same until something is sent,
// and a generation nobody reads must not go on. An answer that is whole by then is still delivered. Requests
// sent ahead wait in the kernel beyond the first few KiB; behind more than that, a client's leaving is
// noticed when something is written to it. One that vanished without closing is noticed by write_timeout.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "serve/http.h"

namespace fathom::serve {

struct HttpServerOptions {
  std::string host        = "127.0.0.1";  // a name or an address; "0.0.0.0" and "::" are all there are
  uint16_t port           = 0;            // 0: any that is free
  int io_threads          = 2;
  int64_t max_connections = 4096;
  size_t max_header_bytes = 16 << 10;  // of the request line, of all headers, and of what is between chunks
  size_t max_body_bytes   = 8 << 20;
  // Of a stream, waiting for a client that does not read; with more it is dropped. A single answer or piece
  // may be larger.
  size_t max_unsent_bytes = 256 << 10;
  std::chrono::milliseconds header_timeout{10'000};  // from the first byte of a head to its last
  std::chrono::milliseconds body_timeout{30'000};    // from the head to the body's last byte
  std::chrono::milliseconds idle_timeout{75'000};    // between an answer and the next request
  std::chrono::milliseconds write_timeout{30'000};   // in which the client takes, or confirms, no byte
};

struct HttpServerStats {
  int64_t connections = 0;  // open at this moment
  // Since the start.
  int64_t accepted        = 0;
  int64_t refused         = 0;  // of those, beyond max_connections
  int64_t dropped_stalled = 0;  // because the client did not read
};

struct HttpServerState;

class HttpServer {
 public:
  // Serves from now on. An error, e.g. when the port is in use, names the address and what to do.
  static Result<std::unique_ptr<HttpServer>> listen(HttpServerOptions options, HttpHandler handler);

  // Drops every connection, running on_gone of answers that were not whole and all work posted before. Not
  // from a handler. Exchanges may live on: they do nothing, and what is posted to them does not run.
  ~HttpServer();
  HttpServer(const HttpServer&)            = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const { return port_; }

  // Takes no new connections, closes idle ones, and each of the others after its present answer.
  void stop_listening();
  // Until no connection is open; false when `timeout` came first.
  bool wait_until_idle(std::chrono::nanoseconds timeout);

  HttpServerStats stats() const;

 private:
  explicit HttpServer(std::shared_ptr<HttpServerState> state);

  std::shared_ptr<HttpServerState> state_;  // exchanges keep it too
  uint16_t port_;
};

}  // namespace fathom::serve
