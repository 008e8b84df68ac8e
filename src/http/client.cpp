#include "http/client.h"

#include <fmt/format.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/version.hpp>
#include <charconv>
#include <cstdlib>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

// g++ 12 reports a false mismatch of new and delete where it inlines one coroutine into another, because
// coroutine frames have their own operator delete.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace fathom::http {
namespace {

namespace asio       = boost::asio;
namespace ssl        = boost::asio::ssl;
namespace beast      = boost::beast;
namespace beast_http = boost::beast::http;
using boost::system::error_code;
using tcp    = asio::ip::tcp;
using Clock  = ResponseSink::Clock;
using Strand = asio::strand<asio::io_context::executor_type>;

constexpr auto kUseTuple      = asio::as_tuple(asio::use_awaitable);
constexpr size_t kPiece       = 4096;  // bytes passed on at once
constexpr size_t kMaxHeader   = 64 << 10;
constexpr size_t kMaxResponse = 16 << 20;  // that fetch() keeps

// Everything of a connection runs on its strand, including its timeout.
struct ClientConnection {
  // `context`: null without TLS.
  ClientConnection(const Strand& strand, ssl::context* context) : strand(strand), stream(strand) {
    if (context) tls.emplace(stream, *context);
  }

  Strand strand;
  beast::tcp_stream stream;                            // has the timeout, with TLS too
  std::optional<ssl::stream<beast::tcp_stream&>> tls;  // over `stream`
  beast::flat_buffer buffer{kMaxHeader};
};

std::string error_text(const error_code& error, std::string_view server, std::chrono::nanoseconds timeout) {
  if (error == beast::error::timeout)
    return fmt::format("{} gave no whole answer within {:.6g} s", server,
                       std::chrono::duration<double>(timeout).count());
  if (error == beast_http::error::end_of_stream || error == asio::error::eof)
    return fmt::format("{} closed the connection without an answer", server);
  if (error == beast_http::error::partial_message)
    return fmt::format("{} closed the connection in the middle of its answer", server);
  return fmt::format("{}: {}", server, error.message());
}

// Why a handshake failed, with the reason that the certificate was refused for.
std::string handshake_error_text(ClientConnection& link, const error_code& error, std::string_view server,
                                 std::chrono::nanoseconds timeout) {
  const long refused = SSL_get_verify_result(link.tls->native_handle());
  if (refused == X509_V_OK || error == beast::error::timeout)
    return fmt::format("no TLS connection: {}", error_text(error, server, timeout));
  return fmt::format("the certificate of {} is refused ({}): name the file of its authority in {}", server,
                     X509_verify_cert_error_string(refused), X509_get_default_cert_file_env());
}

// For connections of a client; the certificates of authorities are read where `certificate` needs them.
ssl::context client_context(Certificate certificate) {
  ssl::context context(ssl::context::tls_client);
  if (certificate == Certificate::any) return context;
  context.set_verify_mode(ssl::verify_peer);
  error_code ignored;  // without authorities every certificate is refused, which says enough
  context.set_default_verify_paths(ignored);
  // OpenSSL's own place is that of the system it was built on.
  if (std::getenv(X509_get_default_cert_file_env()) || std::getenv(X509_get_default_cert_dir_env()))
    return context;
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"}) {
    error_code missing;
    context.load_verify_file(file, missing);
    if (!missing) break;
  }
  return context;
}

// "127.0.0.1:8000", "[::1]:8000".
std::string authority(const Url& url) {
  const bool v6 = url.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", url.host, v6 ? "]" : "", url.port);
}

// The errors of a kept connection that the server had closed before our request arrived.
bool means_stale(const error_code& error) {
  return error == beast_http::error::end_of_stream || error == asio::error::eof ||
         error == asio::error::connection_reset || error == asio::error::broken_pipe ||
         error == ssl::error::stream_truncated;
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  const auto wrong = [&](std::string_view what) {
    return Error{fmt::format("'{}' {}; write http://HOST:PORT or https://HOST:PORT", text, what)};
  };
  Url url;
  url.tls = text.starts_with("https://");
  if (url.tls) url.port = 443;
  if (!url.tls && !text.starts_with("http://")) return wrong("is no address of a server");
  std::string_view rest = text.substr(text.find("//") + 2);
  const size_t slash    = rest.find('/');
  if (slash != std::string_view::npos) {
    url.prefix = rest.substr(slash);
    while (url.prefix.ends_with('/')) url.prefix.pop_back();
    rest = rest.substr(0, slash);
  }
  size_t host_end = rest.find(':');
  if (rest.starts_with('[')) {  // an IPv6 address
    const size_t bracket = rest.find(']');
    if (bracket == std::string_view::npos) return wrong("has a '[' without a ']'");
    url.host = rest.substr(1, bracket - 1);
    host_end = bracket + 1 < rest.size() ? bracket + 1 : std::string_view::npos;
  } else {
    url.host = rest.substr(0, host_end);
  }
  if (url.host.empty()) return wrong("names no host");
  if (host_end == std::string_view::npos) return url;
  const std::string_view port = rest.substr(host_end + 1);
  const auto [end, error]     = std::from_chars(port.data(), port.data() + port.size(), url.port);
  if (rest[host_end] != ':' || error != std::errc() || end != port.data() + port.size() || url.port == 0)
    return wrong("has no port between 1 and 65535");
  return url;
}

std::string to_string(const Url& url) {
  return fmt::format("{}://{}{}", url.tls ? "https" : "http", authority(url), url.prefix);
}

struct Client::State {
  asio::io_context io;
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  tcp::resolver::results_type addresses;
  std::string server;  // "127.0.0.1:8000"
  std::string host;
  std::string prefix;
  std::optional<ssl::context> tls;
  std::vector<std::thread> threads;

  std::mutex mutex;
  std::vector<std::unique_ptr<ClientConnection>> idle;

  std::unique_ptr<ClientConnection> connection() {
    const std::lock_guard lock(mutex);
    if (idle.empty()) return nullptr;
    auto kept = std::move(idle.back());
    idle.pop_back();
    return kept;
  }

  beast_http::request<beast_http::string_body> message(ClientRequest& call) const {
    beast_http::request<beast_http::string_body> request;
    request.method_string(call.method);
    request.target(prefix + call.target);
    request.version(11);
    request.set(beast_http::field::host, server);
    request.set(beast_http::field::user_agent, "fathom");
    for (const Header& header : call.headers) request.set(header.name, header.value);
    request.body() = std::move(call.body);
    request.prepare_payload();
    return request;
  }

  asio::awaitable<void> answer(std::unique_ptr<ClientConnection> link, Strand strand, ClientRequest call,
                               ResponseSink sink);
  asio::awaitable<std::string> connect(ClientConnection& link, std::chrono::nanoseconds timeout);
  template <class Stream>
  asio::awaitable<error_code> exchange(Stream& stream, beast::flat_buffer& buffer,
                                       beast_http::request<beast_http::string_body>& request,
                                       const ResponseSink& sink, bool& begun, bool& keep);
};

// Returns what went wrong, or "".
asio::awaitable<std::string> Client::State::connect(ClientConnection& link,
                                                    std::chrono::nanoseconds timeout) {
  if (const auto [error, address] = co_await link.stream.async_connect(addresses, kUseTuple); error)
    co_return error_text(error, server, timeout);
  error_code ignored;  // if this fails, tokens arrive late; nothing else is affected
  link.stream.socket().set_option(tcp::no_delay(true), ignored);
  if (!link.tls) co_return "";
  SSL* const session = link.tls->native_handle();
  // An IP address is verified as such; a name also tells a server with several certificates which one to
  // send.
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host.c_str()) != 1) {
    SSL_set1_host(session, host.c_str());
    SSL_set_tlsext_host_name(session, host.c_str());
  }
  if (const auto [error] = co_await link.tls->async_handshake(ssl::stream_base::client, kUseTuple); error)
    co_return handshake_error_text(link, error, server, timeout);
  co_return "";
}

// One attempt. `begun`: part of the response has come. `keep`: the connection may be reused.
template <class Stream>
asio::awaitable<error_code> Client::State::exchange(Stream& stream, beast::flat_buffer& buffer,
                                                    beast_http::request<beast_http::string_body>& request,
                                                    const ResponseSink& sink, bool& begun, bool& keep) {
  if (const auto [error, bytes] = co_await beast_http::async_write(stream, request, kUseTuple); error)
    co_return error;
  beast_http::response_parser<beast_http::buffer_body> parser;
  parser.body_limit(boost::none);
  parser.header_limit(kMaxHeader);
  if (const auto [error, bytes] = co_await beast_http::async_read_header(stream, buffer, parser, kUseTuple);
      error) {
    begun = parser.got_some();
    co_return error;
  }
  begun = true;
  sink.status(parser.get().result_int());
  char piece[kPiece];
  while (!parser.is_done()) {
    parser.get().body()       = {.data = piece, .size = kPiece, .more = true};
    const auto [error, bytes] = co_await beast_http::async_read_some(stream, buffer, parser, kUseTuple);
    if (const size_t got = kPiece - parser.get().body().size; got > 0) sink.body(Clock::now(), {piece, got});
    if (error && error != beast_http::error::need_buffer) co_return error;
  }
  keep = parser.keep_alive() && buffer.size() == 0;
  co_return error_code{};
}

asio::awaitable<void> Client::State::answer(std::unique_ptr<ClientConnection> link, Strand strand,
                                            ClientRequest call, ResponseSink sink) {
  const auto timeout  = call.timeout;
  const auto deadline = Clock::now() + timeout;
  auto request        = message(call);
  for (;;) {
    const bool kept = link != nullptr;
    if (!kept) link = std::make_unique<ClientConnection>(strand, tls ? &*tls : nullptr);
    link->stream.expires_at(deadline);
    if (!kept)
      if (std::string failure = co_await connect(*link, timeout); !failure.empty()) {
        sink.end(Clock::now(), std::move(failure));
        co_return;
      }
    bool begun = false, keep = false;
    const error_code error = link->tls
                                 ? co_await exchange(*link->tls, link->buffer, request, sink, begun, keep)
                                 : co_await exchange(link->stream, link->buffer, request, sink, begun, keep);
    if (kept && !begun && means_stale(error)) {
      link.reset();
      continue;
    }
    const auto now = Clock::now();
    if (keep) {
      link->stream.expires_never();
      const std::lock_guard lock(mutex);
      idle.push_back(std::move(link));
    }
    sink.end(now, error ? error_text(error, server, timeout) : "");
    co_return;
  }
}

Client::Client(std::unique_ptr<State> state) : state_(std::move(state)) {}
Client::~Client() { stop(); }

Result<std::unique_ptr<Client>> Client::open(const Url& url, int threads, Certificate certificate) {
  auto state    = std::make_unique<State>();
  state->server = authority(url);
  state->host   = url.host;
  state->prefix = url.prefix;
  if (url.tls) state->tls = client_context(certificate);
  error_code error;
  tcp::resolver resolver(state->io);
  state->addresses = resolver.resolve(url.host, std::to_string(url.port), error);
  if (error)
    return Error{fmt::format("no address is known for the host '{}': {}", url.host, error.message())};
  for (int i = 0; i < threads; ++i) state->threads.emplace_back([&io = state->io] { io.run(); });
  return std::unique_ptr<Client>(new Client(std::move(state)));
}

void Client::start(ClientRequest call, ResponseSink sink) {
  auto link         = state_->connection();
  const auto strand = link ? link->strand : asio::make_strand(state_->io);
  asio::co_spawn(strand, state_->answer(std::move(link), strand, std::move(call), std::move(sink)),
                 [](const std::exception_ptr& failure) {
                   if (failure) std::rethrow_exception(failure);
                 });
}

Result<ClientResponse> Client::fetch(ClientRequest call) {
  ClientResponse reply;
  bool too_much = false;
  std::promise<std::string> ended;
  start(std::move(call),
        {.status = [&](int status) { reply.status = status; },
         .body =
             [&](Clock::time_point, std::string_view piece) {
               too_much |= reply.body.size() + piece.size() > kMaxResponse;
               if (!too_much) reply.body += piece;
             },
         .end = [&](Clock::time_point, std::string error) { ended.set_value(std::move(error)); }});
  const std::string error = ended.get_future().get();
  if (!error.empty()) return Error{error};
  if (too_much) return Error{fmt::format("{} answered with more than 16 MiB", state_->server)};
  return reply;
}

void Client::stop() {
  state_->io.stop();
  for (std::thread& thread : state_->threads)
    if (thread.joinable()) thread.join();
}

}  // namespace fathom::http
