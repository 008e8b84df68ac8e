#include "serve/http_server.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/read_size.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <condition_variable>
#include <ctime>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <thread>
#include <unordered_set>
#include <utility>

#include "core/expect.h"
#include "serve/http_error.h"
#include "serve/http_target.h"

namespace fathom::serve {
namespace {

namespace net   = boost::asio;
namespace beast = boost::beast;
namespace http  = beast::http;
using boost::system::error_code;
using net::ip::tcp;

using Clock    = std::chrono::steady_clock;
using Strand   = net::strand<net::io_context::executor_type>;
using Socket   = net::basic_stream_socket<tcp, Strand>;
using Acceptor = net::basic_socket_acceptor<tcp, Strand>;
using Timer    = net::basic_waitable_timer<Clock, net::wait_traits<Clock>, Strand>;
using Parser   = http::request_parser<http::string_body>;
template <class T>
using Task = net::awaitable<T, Strand>;

constexpr net::as_tuple_t<net::use_awaitable_t<Strand>> kAwait;  // errors come back as values

constexpr size_t kReadAhead    = 4 << 10;   // of the next requests, while one is answered
constexpr size_t kReadAtOnce   = 16 << 10;  // of a body
constexpr size_t kKept         = 4 << 10;   // of a buffer that is empty, for the next piece
constexpr int kUnsentInKernel  = 64 << 10;  // beyond which waiting bytes are ours, and counted
constexpr int64_t kRefusals    = 64;        // connections beyond the limit that are told so, at once
constexpr auto kLinger         = std::chrono::seconds(2);
constexpr auto kOutOfResources = std::chrono::milliseconds(100);

constexpr auto kNever = std::numeric_limits<Clock::rep>::max();
using Deadline        = std::atomic<Clock::rep>;

Clock::rep after(Clock::duration duration) { return (Clock::now() + duration).time_since_epoch().count(); }

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

std::string text_of(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return fmt::format("{}:{}", endpoint.address().is_v6() ? "[" + address + "]" : address, endpoint.port());
}

class Connection;

}  // namespace

struct HttpServerState {
  HttpServerState(HttpServerOptions o, HttpHandler h)
      : options(std::move(o)), handler(std::move(h)), io(options.io_threads) {}

  // Runs `work` on a connection's strand, unless the server has ended. From any thread.
  template <class F>
  void post(const Strand& to, F work) {
    const std::shared_lock lock(posting);
    if (!ended) net::post(to, std::move(work));
  }

  const HttpServerOptions options;
  const HttpHandler handler;
  net::io_context io;
  Strand strand = net::make_strand(io);  // of the acceptor and the sweep
  Acceptor acceptor{strand};
  Timer next_sweep{strand};
  std::vector<std::thread> threads;

  std::atomic<bool> stopping = false;
  std::atomic<bool> ended    = false;  // set under `posting`: the threads run what was posted before, and end
  std::shared_mutex posting;

  mutable std::mutex mutex;
  std::unordered_set<std::shared_ptr<Connection>> connections;  // under the mutex; those whose coroutine runs
  std::condition_variable none_left;
  std::atomic<int64_t> accepted = 0, refused = 0, dropped_stalled = 0;
};

namespace {

// All but overdue(), on_strand() and post() is for the strand, one at a time.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<HttpServerState> state, Socket socket, const tcp::endpoint& peer)
      : state_(std::move(state)), socket_(std::move(socket)), peer_(text_of(peer)) {}

  // The connection's life. `refused`: it is one too many.
  Task<void> serve(bool refused);

  void drop();
  void drop_if_idle() {
    if (idle_) drop();
  }
  Strand strand() { return socket_.get_executor(); }
  bool overdue(Clock::rep now) const {
    return paused_ || read_deadline_ <= now || write_deadline_ <= now || ping_due_ <= now;
  }
  void expire();

  // What an exchange asks for. `number` is its request's; after that was answered these do nothing.
  void respond(uint64_t number, int status, const std::vector<HttpHeader>& headers, std::string_view body);
  void begin_stream(uint64_t number, int status, const std::vector<HttpHeader>& headers,
                    std::optional<Ping> ping);
  void write(uint64_t number, std::string_view piece);
  void end(uint64_t number);
  void on_gone(uint64_t number, std::function<void()> gone);
  void fail(uint64_t number, std::string_view message);

  // At once where the caller is on the strand.
  template <class F>
  void on_strand(F work) {
    if (socket_.get_executor().running_in_this_thread())
      work();
    else
      state_->post(socket_.get_executor(), std::move(work));
  }
  void post(uint64_t number, std::function<void()> work) {
    state_->post(socket_.get_executor(),
                 [self = shared_from_this(), number, work = std::move(work)] { self->run(number, work); });
  }

 private:
  // Of an answer: nothing is asked; the handler has the request; its stream has begun; all of it is in
  // outbox_.
  enum class Phase { reading, preparing, streaming, whole };

  Task<std::optional<HttpRequest>> read_request();
  Task<bool> read_on(Parser& parser, bool head_only);
  Task<void> read_some();
  Task<void> answer_written();
  Task<void> linger();
  std::optional<HttpRequest> request_of(const Parser& parser);
  void hand_over(HttpRequest request);
  void refuse(int status, std::string_view message);
  void refuse(error_code error);
  // Where the kernel has given the client up.
  void count_stalled(error_code error) {
    if (error == net::error::timed_out && !closed_) ++state_->dropped_stalled;
  }

  template <class Work>
  void run(uint64_t number, const Work& work);
  bool at(uint64_t number, Phase phase) const { return number == number_ && phase == phase_; }
  void add_head(int status, const std::vector<HttpHeader>& headers);
  void answer_is_whole();

  void flush_soon();
  void send();
  size_t unsent() const { return outbox_.size() + sending_.size() - sent_; }

  // Until when what is read next must be there.
  void allow(Clock::duration duration) {
    timed_out_     = false;
    read_deadline_ = after(duration);
  }

  const std::shared_ptr<HttpServerState> state_;
  Socket socket_;
  const std::string peer_;
  beast::flat_buffer input_;  // read, not parsed
  Deadline read_deadline_ = kNever, write_deadline_ = kNever, ping_due_ = kNever;
  bool idle_                = false;  // nothing of the next request has come
  bool timed_out_           = false;  // the read deadline
  std::atomic<bool> paused_ = false;  // nothing is read, so that nobody says when the client leaves
  bool eof_                 = false;
  bool closed_              = false;

  uint64_t number_ = 0;  // of the request that is answered
  Phase phase_     = Phase::reading;
  bool http11_     = true;
  bool head_only_  = false;  // HEAD
  bool keep_alive_ = false;
  std::optional<Ping> ping_;  // of a stream
  std::function<void()> gone_;

  std::string outbox_, sending_;  // sent_ bytes of the latter are with the kernel
  size_t sent_  = 0;
  bool writing_ = false;
};

class Exchange final : public HttpExchange {
 public:
  Exchange(std::shared_ptr<Connection> connection, uint64_t number)
      : connection_(std::move(connection)), number_(number) {}
  // Posted in any case: the last owner may be on the strand, before what another asked for gets there.
  ~Exchange() override {
    connection_->post(number_, [connection = connection_.get(), number = number_] {
      connection->fail(number, "the request was dropped without an answer");
    });
  }
  Exchange(const Exchange&)            = delete;
  Exchange& operator=(const Exchange&) = delete;

  void respond(int status, std::vector<HttpHeader> headers, std::string body) override {
    on_strand([status, headers = std::move(headers), body = std::move(body)](Connection& c, uint64_t number) {
      c.respond(number, status, headers, body);
    });
  }
  void begin_stream(int status, std::vector<HttpHeader> headers, std::optional<Ping> ping) override {
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
      if (phase_ == Phase::reading) break;  // nobody is there to be answered
      co_await answer_written();
    } while (keep_alive_ && !closed_ && !state_->stopping);
  }
  co_await linger();
  drop();
}

// None: there will be no more, or it was refused.
Task<std::optional<HttpRequest>> Connection::read_request() {
  const HttpServerOptions& options = state_->options;
  head_only_                       = false;
  keep_alive_                      = false;
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
    allow(options.body_timeout);
    if (http11_ && input_.size() == 0 && beast::iequals(parser.get()[http::field::expect], "100-continue")) {
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

// Until the parser has the head, or everything. False: it will not; the client was told if it is still there.
Task<bool> Connection::read_on(Parser& parser, bool head_only) {
  while (head_only ? !parser.is_header_done() : !parser.is_done()) {
    // What is left of a chunked body ends with "0\r\n\r\n"; Beast asserts that it is given as much.
    const size_t enough = parser.is_header_done() && parser.chunked() ? 5 : 1;
    error_code error    = http::error::need_more;
    if (input_.size() >= enough) input_.consume(parser.put(input_.data(), error));
    if (!error) continue;
    if (error == http::error::need_more && input_.size() >= state_->options.max_header_bytes)
      error = http::error::header_limit;
    if (error != http::error::need_more) {
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

// At least a byte, or eof_, or nothing where something else woke it.
Task<void> Connection::read_some() {
  if (eof_) co_return;  // Asio says so once, and would wait for ever
  const auto room           = input_.prepare(beast::read_size(input_, kReadAtOnce));
  const auto [error, count] = co_await socket_.async_read_some(room, kAwait);
  input_.commit(count);
  if (error && error != net::error::operation_aborted) eof_ = true;
  count_stalled(error);
}

// The request without its body, of a parser that has the head; none: it was refused.
std::optional<HttpRequest> Connection::request_of(const Parser& parser) {
  const auto& head = parser.get();
  http11_          = head.version() == 11;
  head_only_       = head.method() == http::verb::head;
  keep_alive_      = parser.keep_alive();

  // RFC 9112 sections 6.1 and 3.2: what follows a coding that we do not know cannot be told from the next
  // request.
  for (const auto& field : head)
    if (field.name() == http::field::transfer_encoding && !beast::iequals(field.value(), "chunked"))
      return refuse(501, "of transfer encodings only chunked is known"), std::nullopt;
  if (http11_ && head.count(http::field::host) != 1)
    return refuse(400, "a request of HTTP/1.1 has one Host header"), std::nullopt;
  auto target = parse_http_target(view(head.target()));
  if (!target) return refuse(400, target.error().message), std::nullopt;

  HttpRequest request{.method = std::string(view(head.method_string())),
                      .path   = std::move(target->path),
                      .query  = std::move(target->query),
                      .peer   = peer_};
  for (const auto& field : head)
    request.headers.push_back({std::string(view(field.name_string())), std::string(view(field.value()))});
  return request;
}

void Connection::hand_over(HttpRequest request) {
  phase_              = Phase::preparing;
  const auto exchange = std::make_shared<Exchange>(shared_from_this(), ++number_);
  run(number_, [&] { state_->handler(std::move(request), exchange); });
}

// Whatever a request makes our code throw ends that request, not the server.
template <class Work>
void Connection::run(uint64_t number, const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    fail(number, error.what());
  }
}

// Meanwhile the client may leave, or send its next requests.
Task<void> Connection::answer_written() {
  while (!closed_ && (phase_ != Phase::whole || writing_)) {
    if (eof_ && phase_ != Phase::whole) {
      drop();
    } else if (eof_ || input_.size() >= kReadAhead) {
      paused_            = true;
      const auto [error] = co_await socket_.async_wait(Socket::wait_error, kAwait);
      paused_            = false;
      if (!error) drop();  // a reset; else send() has woken us
    } else {
      co_await read_some();
    }
  }
}

// Closing while bytes of the client are unread resets the connection, and an answer on its way may be lost
// (RFC 9112 section 9.6). So first it is told that this was all, and given time to close.
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
  // What nobody will read is not to stay in the kernel either.
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
  // Behind bytes that we leave unread, the end of what the client sends shows in no other way.
  if (paused_ && phase_ != Phase::whole) {
    pollfd end{.fd = socket_.native_handle(), .events = POLLRDHUP};
    if (::poll(&end, 1, 0) > 0) return drop();
  }
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
  keep_alive_                     = false;
  phase_                          = Phase::preparing;
  std::vector<HttpHeader> headers = {{"Content-Type", "application/json"}};
  if (status == 503) headers.push_back({"Retry-After", "1"});
  respond(number_, status, headers, http_error_body(status, message));
}

void Connection::refuse(error_code error) {
  const HttpServerOptions& options = state_->options;
  if (error == http::error::header_limit)
    refuse(431, fmt::format("the request's head is longer than {} bytes", options.max_header_bytes));
  else if (error == http::error::body_limit)
    refuse(413, fmt::format("the request's body is longer than {} bytes", options.max_body_bytes));
  else
    refuse(400, "the request is no HTTP/1.1: " + error.message());
}

void Connection::respond(uint64_t number, int status, const std::vector<HttpHeader>& headers,
                         std::string_view body) {
  if (!at(number, Phase::preparing)) return;
  const bool bodiless = status == 204 || status == 304;
  add_head(status, headers);
  if (!bodiless) fmt::format_to(std::back_inserter(outbox_), "Content-Length: {}\r\n", body.size());
  outbox_ += "\r\n";
  if (!bodiless && !head_only_) outbox_ += body;
  answer_is_whole();
}

void Connection::begin_stream(uint64_t number, int status, const std::vector<HttpHeader>& headers,
                              std::optional<Ping> ping) {
  if (!at(number, Phase::preparing)) return;
  keep_alive_ = keep_alive_ && http11_;  // HTTP/1.0 knows no chunks: the stream ends with the connection
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

// A stream ends without its last chunk, so that the client knows that something is missing.
void Connection::fail(uint64_t number, std::string_view message) {
  if (at(number, Phase::preparing)) refuse(500, message);
  if (!at(number, Phase::streaming)) return;
  keep_alive_ = false;
  answer_is_whole();
}

void Connection::add_head(int status, const std::vector<HttpHeader>& headers) {
  const auto out = std::back_inserter(outbox_);
  keep_alive_    = keep_alive_ && !state_->stopping;
  fmt::format_to(out, "HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\n", status,
                 view(http::obsolete_reason(static_cast<http::status>(status))),
                 fmt::gmtime(std::time(nullptr)));
  for (const HttpHeader& header : headers) {
    fmt::format_to(out, "{}: ", header.name);
    // A line break in what a client sent, and we echo, must not begin a header of its own.
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

// After what runs now, so that all it writes goes out together.
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

// A client that vanished without a word, behind a cable that was pulled, say, confirms nothing any more: of
// what is sent to it, or of probes while nothing is. By itself the kernel would go on for a quarter of an
// hour.
void give_up_within(std::chrono::milliseconds timeout, int socket) {
  const auto most   = static_cast<unsigned>(std::clamp<int64_t>(timeout.count(), 1, 86'400'000));
  const int seconds = static_cast<int>(std::max(1U, most / 2000));
  const auto set    = [&](int level, int name, auto value) {
    (void)::setsockopt(socket, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, most);
  set(IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
}

Task<void> accept(std::shared_ptr<HttpServerState> shared) {
  HttpServerState& state           = *shared;
  const HttpServerOptions& options = state.options;
  while (true) {
    tcp::endpoint peer;
    auto [error, socket] = co_await state.acceptor.async_accept(net::make_strand(state.io), peer, kAwait);
    if (state.stopping || state.ended) co_return;
    if (error) {  // out of descriptors or memory; those who wait stay in the kernel's queue
      Timer timer(state.strand, kOutOfResources);
      co_await timer.async_wait(kAwait);
      continue;
    }
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    (void)::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentInKernel,
                       sizeof kUnsentInKernel);
    give_up_within(options.write_timeout, socket.native_handle());
    const Strand strand   = socket.get_executor();
    const auto connection = std::make_shared<Connection>(shared, std::move(socket), peer);

    std::unique_lock lock(state.mutex);
    const auto open    = static_cast<int64_t>(state.connections.size());
    const bool refused = open >= options.max_connections;
    ++state.accepted;
    if (refused) ++state.refused;
    if (open >= options.max_connections + kRefusals) continue;
    state.connections.insert(connection);
    lock.unlock();
    // An exception is memory's end: it costs this connection.
    net::co_spawn(strand, connection->serve(refused), [connection, &state](const std::exception_ptr&) {
      connection->drop();
      const std::lock_guard lock(state.mutex);
      state.connections.erase(connection);
      if (state.connections.empty()) state.none_left.notify_all();
    });
  }
}

// Looks for connections past their deadline: one timer for all, which costs less than setting two for each
// read and write.
Task<void> sweep(HttpServerState& state) {
  const HttpServerOptions& options = state.options;
  const auto shortest =
      std::min({options.header_timeout, options.body_timeout, options.idle_timeout, options.write_timeout});
  const auto period = std::clamp(shortest / 8, std::chrono::milliseconds(5), std::chrono::milliseconds(250));
  while (!state.ended) {
    state.next_sweep.expires_after(period);
    co_await state.next_sweep.async_wait(kAwait);
    const Clock::rep now = after({});
    const std::lock_guard lock(state.mutex);
    for (const auto& connection : state.connections)
      if (connection->overdue(now)) connection->on_strand([connection] { connection->expire(); });
  }
}

// On the state's strand.
template <class F>
void each_connection(HttpServerState& state, F act) {
  const std::lock_guard lock(state.mutex);
  for (const auto& connection : state.connections)
    net::post(connection->strand(), [connection, act] { act(*connection); });
}

std::string remedy(error_code error) {
  if (error == net::error::address_in_use)
    return "another program listens there: stop it, or choose another port";
  if (error == net::error::access_denied) return "choose a port above 1023";
  return "give an address of this machine, or 0.0.0.0 for all of them";
}

error_code open(Acceptor& acceptor, const tcp::endpoint& endpoint) {
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(Acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(Acceptor::max_listen_connections, error);
  return error;
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(HttpServerOptions options, HttpHandler handler) {
  FATHOM_EXPECT(options.io_threads >= 1 && options.max_connections >= 1,
                "a server needs a thread and a connection");
  const std::string host = options.host, port = std::to_string(options.port);
  const auto state = std::make_shared<HttpServerState>(std::move(options), std::move(handler));
  error_code error;
  const auto found = tcp::resolver(state->io).resolve(host, port, tcp::resolver::passive, error);
  // "localhost" is both, and clients try IPv4 whatever happens.
  auto chosen = std::find_if(found.begin(), found.end(),
                             [](const auto& entry) { return entry.endpoint().address().is_v4(); });
  if (chosen == found.end()) chosen = found.begin();
  if (!error) error = open(state->acceptor, chosen->endpoint());
  if (error)
    return Error{fmt::format("cannot listen on {}:{} ({}): {}", host, port, error.message(), remedy(error))};

  net::co_spawn(state->strand, accept(state), net::detached);
  net::co_spawn(state->strand, sweep(*state), net::detached);
  for (int i = 0; i < state->options.io_threads; ++i)
    state->threads.emplace_back([&io = state->io] { io.run(); });
  return std::unique_ptr<HttpServer>(new HttpServer(state));
}

HttpServer::HttpServer(std::shared_ptr<HttpServerState> state) : state_(std::move(state)) {
  port_ = state_->acceptor.local_endpoint().port();
}

HttpServer::~HttpServer() {
  {
    const std::lock_guard lock(state_->posting);
    state_->ended = true;
  }
  net::post(state_->strand, [&state = *state_] {
    error_code ignored;
    state.acceptor.close(ignored);
    state.next_sweep.cancel();
    each_connection(state, [](Connection& connection) { connection.drop(); });
  });
  for (std::thread& thread : state_->threads) thread.join();
}

void HttpServer::stop_listening() {
  state_->stopping = true;
  net::post(state_->strand, [&state = *state_] {
    error_code ignored;
    state.acceptor.close(ignored);
    each_connection(state, [](Connection& connection) { connection.drop_if_idle(); });
  });
}

bool HttpServer::wait_until_idle(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(state_->mutex);
  return state_->none_left.wait_for(lock, timeout, [&] { return state_->connections.empty(); });
}

HttpServerStats HttpServer::stats() const {
  const std::lock_guard lock(state_->mutex);
  return {.connections     = static_cast<int64_t>(state_->connections.size()),
          .accepted        = state_->accepted,
          .refused         = state_->refused,
          .dropped_stalled = state_->dropped_stalled};
}

}  // namespace fathom::serve
