// An HTTP/1.1 server (RFC 9112): reads requests, calls the handler, writes the answers. A connection is one
// coroutine on a few shared threads; an open, idle one costs a few KiB.
//
// A bad request is answered with JSON, {"error": {"message", "type", "param", "code"}}, and the connection is
// closed: 400 malformed, 408 too slow, 413 body too large, 431 head too large, 501 a transfer encoding other
// than chunked, 503 too many connections or too many bytes of bodies at once, 500 where the handler threw or
// dropped the exchange without an answer.
//
// A client that closes its sending side counts as gone. The server cannot tell this from closing both sides
// until it sends something, and a generation that nobody reads must not continue. An answer that is complete
// by then is still delivered.
//
// Of requests sent ahead (pipelined) the server reads a few KiB; the rest waits in the kernel. Where the rest
// is more than the kernel buffers, the server notices that the client left only when it writes to it. A
// client that vanished without closing is noticed after write_timeout.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "http/http.h"

namespace fathom::http {

struct ServerOptions {
  std::string host        = "127.0.0.1";  // name or address; "0.0.0.0" or "::" for all interfaces
  uint16_t port           = 0;            // 0: any free port
  int io_threads          = 2;
  int64_t max_connections = 4096;
  // Of the request line and all headers together, and of what stands between two chunks.
  size_t max_header_bytes = 16 << 10;
  size_t max_body_bytes   = 8 << 20;
  // Of all requests together, from a body's announced length (chunked: from what has arrived) until its
  // handler returns; at least max_body_bytes. Beyond it a request is answered 503.
  size_t max_bodies_bytes = 256 << 20;
  // Of a stream whose client does not read; beyond it the client is dropped. A single answer or piece may be
  // larger.
  size_t max_unsent_bytes = 256 << 10;
  std::chrono::milliseconds header_timeout{10'000};  // from the first byte of a head to its last
  std::chrono::milliseconds body_timeout{30'000};    // from the head to the body's last byte
  std::chrono::milliseconds idle_timeout{75'000};    // between an answer and the next request
  std::chrono::milliseconds write_timeout{30'000};   // without the client taking or confirming a byte
};

struct ServerStats {
  int64_t connections = 0;  // open now
  size_t body_bytes   = 0;  // of requests being read, counted towards max_bodies_bytes
  // Counters since the start.
  int64_t accepted        = 0;
  int64_t refused         = 0;  // of the accepted: beyond max_connections
  int64_t dropped_stalled = 0;  // clients dropped because they did not read
};

struct ServerState;

class Server {
 public:
  // Starts to serve. An error (the port is in use, for instance) names the address and a remedy.
  static Result<std::unique_ptr<Server>> listen(ServerOptions options, Handler handler);

  // Drops every connection, after running on_gone of incomplete answers and all posted work. Must not be
  // called from a handler. Exchanges may outlive the server: their functions do nothing, and work posted to
  // them does not run.
  ~Server();
  Server(const Server&)            = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const { return port_; }

  // Accepts no more connections, closes idle ones, and closes each of the others after its current answer.
  void stop_listening();
  // Waits until no connection is open; false where `timeout` passed first.
  bool wait_until_idle(std::chrono::nanoseconds timeout);

  ServerStats stats() const;

 private:
  explicit Server(std::shared_ptr<ServerState> state);

  std::shared_ptr<ServerState> state_;  // shared with exchanges
  uint16_t port_;
};

}  // namespace fathom::http
