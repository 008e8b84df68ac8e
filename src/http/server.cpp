#include "http/server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <exception>

#include "core/expect.h"
#include "http/connection.h"

namespace fathom::http {
namespace {

constexpr int kUnsentInKernel  = 64 << 10;  // unsent bytes beyond this stay with us, where they are counted
constexpr int64_t kRefusals    = 64;  // connections beyond the limit that are answered 503 at the same time
constexpr auto kOutOfResources = std::chrono::milliseconds(100);

// A client that vanished without closing (a pulled cable, for instance) stops confirming: both data and
// keepalive probes. Without these options the kernel would wait for about a quarter of an hour.
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

Task<void> accept(std::shared_ptr<ServerState> shared) {
  ServerState& state           = *shared;
  const ServerOptions& options = state.options;
  while (true) {
    tcp::endpoint peer;
    auto [error, socket] = co_await state.acceptor.async_accept(net::make_strand(state.io), peer, kAwait);
    if (state.stopping || state.ended) co_return;
    if (error) {  // out of descriptors or memory; new clients wait in the kernel's queue
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
    // An exception means that memory ran out. It costs this connection only.
    net::co_spawn(strand, connection->serve(refused), [connection, &state](const std::exception_ptr&) {
      connection->drop();
      const std::lock_guard lock(state.mutex);
      state.connections.erase(connection);
      if (state.connections.empty()) state.none_left.notify_all();
    });
  }
}

// Looks for connections past a deadline. One timer for all is cheaper than setting two timers for each read
// and write.
Task<void> sweep(ServerState& state) {
  const ServerOptions& options = state.options;
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

// Runs on the state's strand.
template <class F>
void each_connection(ServerState& state, F act) {
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

Result<std::unique_ptr<Server>> Server::listen(ServerOptions options, Handler handler) {
  FATHOM_EXPECT(options.io_threads >= 1 && options.max_connections >= 1,
                "a server needs a thread and a connection");
  options.max_bodies_bytes = std::max(options.max_bodies_bytes, options.max_body_bytes);
  const std::string host = options.host, port = std::to_string(options.port);
  const auto state = std::make_shared<ServerState>(std::move(options), std::move(handler));
  error_code error;
  const auto found = tcp::resolver(state->io).resolve(host, port, tcp::resolver::passive, error);
  // "localhost" resolves to IPv4 and IPv6; every client tries IPv4.
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
  return std::unique_ptr<Server>(new Server(state));
}

Server::Server(std::shared_ptr<ServerState> state) : state_(std::move(state)) {
  port_ = state_->acceptor.local_endpoint().port();
}

Server::~Server() {
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

void Server::stop_listening() {
  state_->stopping = true;
  net::post(state_->strand, [&state = *state_] {
    error_code ignored;
    state.acceptor.close(ignored);
    each_connection(state, [](Connection& connection) { connection.drop_if_idle(); });
  });
}

bool Server::wait_until_idle(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(state_->mutex);
  return state_->none_left.wait_for(lock, timeout, [&] { return state_->connections.empty(); });
}

ServerStats Server::stats() const {
  const std::lock_guard lock(state_->mutex);
  return {.connections     = static_cast<int64_t>(state_->connections.size()),
          .body_bytes      = state_->body_bytes,
          .accepted        = state_->accepted,
          .refused         = state_->refused,
          .dropped_stalled = state_->dropped_stalled};
}

}  // namespace fathom::http
