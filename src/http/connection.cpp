#include "http/connection.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/beast/core/read_size.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/status.hpp>
#include <ctime>
#include <exception>

#include "http/error_body.h"
#include "http/request_target.h"

namespace fathom::http {
namespace {

namespace beast      = boost::beast;
namespace beast_http = beast::http;

constexpr size_t kReadAhead  = 4 << 10;   // bytes of the next requests that are read during an answer
constexpr size_t kReadAtOnce = 16 << 10;  // bytes of a body in one read
constexpr size_t kKept       = 4 << 10;   // capacity that an empty output buffer keeps
constexpr auto kLinger       = std::chrono::seconds(2);

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

std::string text_of(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return fmt::format("{}:{}", endpoint.address().is_v6() ? "[" + address + "]" : address, endpoint.port());
}

class ConnectionExchange final : public Exchange {
 public:
  ConnectionExchange(std::shared_ptr<Connection> connection, uint64_t number)
      : connection_(std::move(connection)), number_(number) {}
  // Always posted, never run at once: another thread's call may be queued on the strand, and must come first.
  ~ConnectionExchange() override {
    connection_->post(number_, [connection = connection_.get(), number = number_] {
      connection->fail(number, "the request was dropped without an answer");
    });
  }
  ConnectionExchange(const ConnectionExchange&)            = delete;
  ConnectionExchange& operator=(const ConnectionExchange&) = delete;

  void respond(int status, std::vector<Header> headers, std::string body) override {
    on_strand([status, headers = std::move(headers), body = std::move(body)](Connection& c, uint64_t number) {
      c.respond(number, status, headers, body);
    });
  }
  void begin_stream(int status, std::vector<Header> headers, std::optional<Ping> ping) override {
    on_strand([status, headers = std::move(headers), ping = std::move(ping)](Connection& connection,
                                                                             uint64_t number) {
      connection.begin_stream(number, status, headers, ping);
    });
  }
  void write(std::string piece) override {
    on_strand([piece = std::move(piece)](Connection& connection, uint64_t number) {
      connection.write(number, piece);
    });
  }
  void end() override {
    on_strand([](Connection& connection, uint64_t number) { connection.end(number); });
  }
  void post(std::function<void()> work) override { connection_->post(number_, std::move(work)); }
  void on_gone(std::function<void()> gone) override {
    on_strand([gone = std::move(gone)](Connection& connection, uint64_t number) mutable {
      connection.on_gone(number, std::move(gone));
    });
  }

 private:
  template <class F>
  void on_strand(F work) {
    connection_->on_strand([connection = connection_, number = number_, work = std::move(work)]() mutable {
      work(*connection, number);
    });
  }

  const std::shared_ptr<Connection> connection_;
  const uint64_t number_;
};

}  // namespace

Connection::Connection(std::shared_ptr<ServerState> state, Socket socket, const tcp::endpoint& peer)
    : state_(std::move(state)), socket_(std::move(socket)), peer_(text_of(peer)), body_claim_(*state_) {}

Task<void> Connection::serve(bool refused) {
  if (refused) {
    refuse(503, fmt::format("{} connections are open, and no more are taken: try again later",
                            state_->options.max_connections));
    co_await answer_written();
  } else {
    do {
      phase_       = Phase::reading;
      auto request = co_await read_request();
      if (request && !closed_) hand_over(std::move(*request));
      request.reset();
      body_claim_.release();
      if (phase_ == Phase::reading) break;  // the client has left, or sent no request
      co_await answer_written();
    } while (keep_alive_ && !closed_ && !state_->stopping);
  }
  co_await linger();
  drop();
}

// None: the client sends no more requests, or this one was refused.
Task<std::optional<Request>> Connection::read_request() {
  const ServerOptions& options = state_->options;
  head_only_                   = false;
  keep_alive_                  = false;
  if (input_.size() == 0) {
    if (state_->stopping) co_return std::nullopt;
    input_.shrink_to_fit();
    allow(number_ == 0 ? options.header_timeout : options.idle_timeout);
    idle_ = true;
    co_await read_some();
    idle_ = false;
    if (input_.size() == 0) co_return std::nullopt;
  }

  allow(options.header_timeout);
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(options.max_header_bytes));
  parser.body_limit(options.max_body_bytes);
  if (!co_await read_on(parser, true)) co_return std::nullopt;
  auto request = request_of(parser);
  if (!request) co_return std::nullopt;

  if (!parser.is_done()) {
    // A chunked body has no length yet: read_on() raises its claim as the body grows.
    if (const auto length = parser.content_length(); length && !claim_body(*length)) co_return std::nullopt;
    allow(options.body_timeout);
    if (http11_ && input_.size() == 0 &&
        beast::iequals(parser.get()[beast_http::field::expect], "100-continue")) {
      outbox_ += "HTTP/1.1 100 Continue\r\n\r\n";
      flush_soon();
    }
    input_.reserve(kReadAtOnce);
    if (!co_await read_on(parser, false)) co_return std::nullopt;
    request->body = std::move(parser.get().body());
  }
  read_deadline_ = kNever;
  if (input_.size() == 0) input_.shrink_to_fit();
  co_return request;
}

// Reads until the parser has the head, or the whole request. False: it never will; a client that is still
// there has been answered.
Task<bool> Connection::read_on(Parser& parser, bool head_only) {
  while (head_only ? !parser.is_header_done() : !parser.is_done()) {
    // A chunked body ends with "0\r\n\r\n". Beast asserts that it gets all five bytes at once.
    const size_t enough = parser.is_header_done() && parser.chunked() ? 5 : 1;
    error_code error    = beast_http::error::need_more;
    if (input_.size() >= enough) input_.consume(parser.put(input_.data(), error));
    if (!head_only && !claim_body(parser.get().body().size())) co_return false;
    if (!error) continue;
    if (error == beast_http::error::need_more && input_.size() >= state_->options.max_header_bytes)
      error = beast_http::error::header_limit;
    if (error != beast_http::error::need_more) {
      refuse(error);
      co_return false;
    }
    const std::string_view part = parser.is_header_done() ? "body" : "head";
    co_await read_some();
    if (timed_out_) refuse(408, fmt::format("the request's {} took too long to arrive", part));
    if (timed_out_ || eof_ || closed_) co_return false;
  }
  co_return true;
}

// Reads at least a byte, or sets eof_, or reads nothing where the socket was cancelled.
Task<void> Connection::read_some() {
  if (eof_) co_return;  // Asio reports the end once; a second read would wait for ever
  const auto room           = input_.prepare(beast::read_size(input_, kReadAtOnce));
  const auto [error, count] = co_await socket_.async_read_some(room, kAwait);
  input_.commit(count);
  if (error && error != net::error::operation_aborted) eof_ = true;
  count_stalled(error);
}

// The request without its body, from a parser that has the head. None: it was refused.
std::optional<Request> Connection::request_of(const Parser& parser) {
  const auto& head = parser.get();
  http11_          = head.version() == 11;
  head_only_       = head.method() == beast_http::verb::head;
  keep_alive_      = parser.keep_alive();

  // RFC 9112 sections 6.1 and 3.2: with an unknown transfer coding, the end of the body and the start of the
  // next request cannot be found.
  for (const auto& field : head)
    if (field.name() == beast_http::field::transfer_encoding && !beast::iequals(field.value(), "chunked"))
      return refuse(501, "of transfer encodings only chunked is known"), std::nullopt;
  if (http11_ && head.count(beast_http::field::host) != 1)
    return refuse(400, "a request of HTTP/1.1 has one Host header"), std::nullopt;
  auto target = parse_request_target(view(head.target()));
  if (!target) return refuse(400, target.error().message), std::nullopt;

  Request request{.method = std::string(view(head.method_string())),
                  .path   = std::move(target->path),
                  .query  = std::move(target->query),
                  .peer   = peer_};
  for (const auto& field : head)
    request.headers.push_back({std::string(view(field.name_string())), std::string(view(field.value()))});
  return request;
}

void Connection::hand_over(Request request) {
  phase_              = Phase::preparing;
  const auto exchange = std::make_shared<ConnectionExchange>(shared_from_this(), ++number_);
  run(number_, [&] { state_->handler(std::move(request), exchange); });
}

// An exception from the handler or from posted work ends its request, not the server.
template <class Work>
void Connection::run(uint64_t number, const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    fail(number, error.what());
  }
}

// Whether the kernel reports one of `events`, an error or a hang-up now. Asio's own report may be of a closed
// socket whose place in its reactor this one has taken.
bool Connection::polled(short events) {
  pollfd socket{.fd = socket_.native_handle(), .events = events};
  return ::poll(&socket, 1, 0) > 0;
}

// Waits until the answer is written. The client may leave or send its next requests meanwhile.
Task<void> Connection::answer_written() {
  while (!closed_ && (phase_ != Phase::whole || writing_)) {
    if (eof_ && phase_ != Phase::whole) {
      drop();
    } else if (eof_ || input_.size() >= kReadAhead) {
      paused_            = true;
      const auto [error] = co_await socket_.async_wait(Socket::wait_error, kAwait);
      paused_            = false;
      if (!error && polled(0)) drop();  // the connection was reset; otherwise send() has cancelled the wait
    } else {
      co_await read_some();
    }
  }
}

// Closing while bytes of the client are unread resets the connection, and an answer in flight may be lost
// (RFC 9112 section 9.6). So the server first closes its sending side and gives the client time to close.
Task<void> Connection::linger() {
  if (closed_) co_return;
  error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  allow(kLinger);
  input_.reserve(kReadAtOnce);
  while (!timed_out_ && !eof_ && !closed_) {
    input_.clear();
    co_await read_some();
  }
}

void Connection::drop() {
  if (closed_) return;
  closed_         = true;
  read_deadline_  = kNever;
  write_deadline_ = kNever;
  ping_due_       = kNever;
  error_code ignored;
  // Discards what the kernel still holds for this client too.
  if (unsent() > 0) socket_.set_option(Socket::linger(true, 0), ignored);
  socket_.close(ignored);
  outbox_             = {};
  const bool answered = phase_ == Phase::reading || phase_ == Phase::whole;
  phase_              = Phase::whole;
  auto gone           = std::exchange(gone_, nullptr);
  if (!answered && gone)
    net::post(socket_.get_executor(),
              [self = shared_from_this(), gone = std::move(gone)] { self->run(self->number_, gone); });
}

void Connection::expire() {
  // While unread bytes are pending, only a poll shows that the client has closed its sending side.
  if (paused_ && phase_ != Phase::whole && polled(POLLRDHUP)) return drop();
  const Clock::rep now = after({});
  if (ping_due_ <= now) write(number_, ping_->piece);
  if (write_deadline_ <= now) {
    ++state_->dropped_stalled;
    drop();
  } else if (read_deadline_ <= now) {
    timed_out_     = true;
    read_deadline_ = kNever;
    error_code ignored;
    socket_.cancel(ignored);
  }
}

void Connection::refuse(int status, std::string_view message) {
  keep_alive_                 = false;
  phase_                      = Phase::preparing;
  std::vector<Header> headers = {{"Content-Type", "application/json"}};
  if (status == 503) headers.push_back({"Retry-After", "1"});
  respond(number_, status, headers, error_body(status, message));
}

void Connection::refuse(error_code error) {
  const ServerOptions& options = state_->options;
  if (error == beast_http::error::header_limit)
    refuse(431, fmt::format("the request's head is longer than {} bytes", options.max_header_bytes));
  else if (error == beast_http::error::body_limit)
    refuse(413, fmt::format("the request's body is longer than {} bytes", options.max_body_bytes));
  else
    refuse(400, "the request is no HTTP/1.1: " + error.message());
}

// False: the request was refused, because the bodies of all requests are too large together.
bool Connection::claim_body(size_t bytes) {
  if (body_claim_.raise_to(bytes)) return true;
  refuse(503, fmt::format("the bodies of all requests together would exceed {} bytes: try again later",
                          state_->options.max_bodies_bytes));
  return false;
}

void Connection::respond(uint64_t number, int status, const std::vector<Header>& headers,
                         std::string_view body) {
  if (!at(number, Phase::preparing)) return;
  const bool bodiless = status == 204 || status == 304;
  add_head(status, headers);
  if (!bodiless) fmt::format_to(std::back_inserter(outbox_), "Content-Length: {}\r\n", body.size());
  outbox_ += "\r\n";
  if (!bodiless && !head_only_) outbox_ += body;
  answer_is_whole();
}

void Connection::begin_stream(uint64_t number, int status, const std::vector<Header>& headers,
                              std::optional<Ping> ping) {
  if (!at(number, Phase::preparing)) return;
  keep_alive_ = keep_alive_ && http11_;  // HTTP/1.0 has no chunks: closing the connection ends the stream
  add_head(status, headers);
  outbox_ += http11_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
  phase_ = Phase::streaming;
  ping_  = head_only_ ? std::nullopt : std::move(ping);
  if (ping_) ping_due_ = after(ping_->after);
  flush_soon();
}

void Connection::write(uint64_t number, std::string_view piece) {
  if (!at(number, Phase::streaming) || head_only_ || piece.empty()) return;
  if (unsent() > 0 && unsent() + piece.size() > state_->options.max_unsent_bytes) {
    ++state_->dropped_stalled;
    return drop();
  }
  if (http11_)
    fmt::format_to(std::back_inserter(outbox_), "{:x}\r\n{}\r\n", piece.size(), piece);
  else
    outbox_ += piece;
  if (ping_) ping_due_ = after(ping_->after);
  flush_soon();
}

void Connection::end(uint64_t number) {
  if (!at(number, Phase::streaming)) return;
  if (http11_ && !head_only_) outbox_ += "0\r\n\r\n";
  answer_is_whole();
}

void Connection::on_gone(uint64_t number, std::function<void()> gone) {
  if (at(number, Phase::preparing) || at(number, Phase::streaming)) gone_ = std::move(gone);
}

// A stream ends without its last chunk, which tells the client that it is incomplete.
void Connection::fail(uint64_t number, std::string_view message) {
  if (at(number, Phase::preparing)) refuse(500, message);
  if (!at(number, Phase::streaming)) return;
  keep_alive_ = false;
  answer_is_whole();
}

void Connection::add_head(int status, const std::vector<Header>& headers) {
  const auto out = std::back_inserter(outbox_);
  keep_alive_    = keep_alive_ && !state_->stopping;
  fmt::format_to(out, "HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\n", status,
                 view(beast_http::obsolete_reason(static_cast<beast_http::status>(status))),
                 fmt::gmtime(std::time(nullptr)));
  for (const Header& header : headers) {
    fmt::format_to(out, "{}: ", header.name);
    // A line break in a value that the client sent, and that we echo, must not start another header.
    for (const char c : header.value) outbox_ += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    outbox_ += "\r\n";
  }
  if (!keep_alive_)
    outbox_ += "Connection: close\r\n";
  else if (!http11_)
    outbox_ += "Connection: keep-alive\r\n";
}

void Connection::answer_is_whole() {
  phase_    = Phase::whole;
  ping_due_ = kNever;
  gone_     = nullptr;
  flush_soon();
}

// Sends after the current function, so that everything it writes goes out together.
void Connection::flush_soon() {
  if (writing_ || closed_) return;
  writing_ = true;
  net::post(socket_.get_executor(), [self = shared_from_this()] { self->send(); });
}

void Connection::send() {
  if (closed_) return;
  if (sent_ == sending_.size()) {
    sent_ = 0;
    sending_.clear();
    if (sending_.capacity() > kKept) sending_ = {};
    sending_.swap(outbox_);
  }
  if (sending_.empty()) {
    writing_        = false;
    write_deadline_ = kNever;
    error_code ignored;
    if (phase_ == Phase::whole) socket_.cancel(ignored);  // wakes answer_written()
    return;
  }
  write_deadline_ = after(state_->options.write_timeout);
  socket_.async_write_some(net::buffer(sending_) + sent_,
                           [self = shared_from_this()](error_code error, size_t count) {
                             self->sent_ += count;
                             if (!error) return self->send();
                             self->count_stalled(error);
                             self->drop();
                             self->sending_ = {};
                           });
}

}  // namespace fathom::http
