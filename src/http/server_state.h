// What the connections of one server share. Private to server.cpp and connection.cpp.
#pragma once

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "http/server.h"

namespace fathom::http {

namespace net = boost::asio;
using boost::system::error_code;
using net::ip::tcp;

using Clock    = std::chrono::steady_clock;
using Strand   = net::strand<net::io_context::executor_type>;
using Socket   = net::basic_stream_socket<tcp, Strand>;
using Acceptor = net::basic_socket_acceptor<tcp, Strand>;
using Timer    = net::basic_waitable_timer<Clock, net::wait_traits<Clock>, Strand>;
template <class T>
using Task = net::awaitable<T, Strand>;

inline constexpr net::as_tuple_t<net::use_awaitable_t<Strand>> kAwait;  // errors are returned, not thrown

inline Clock::rep after(Clock::duration duration) {
  return (Clock::now() + duration).time_since_epoch().count();
}

class Connection;

struct ServerState {
  ServerState(ServerOptions o, Handler h)
      : options(std::move(o)), handler(std::move(h)), io(options.io_threads) {}

  // Runs `work` on a connection's strand, unless the server has ended. Callable from any thread.
  template <class F>
  void post(const Strand& to, F work) {
    const std::shared_lock lock(posting);
    if (!ended) net::post(to, std::move(work));
  }

  const ServerOptions options;
  const Handler handler;
  net::io_context io;
  Strand strand = net::make_strand(io);  // of the acceptor and the sweep
  Acceptor acceptor{strand};
  Timer next_sweep{strand};
  std::vector<std::thread> threads;

  std::atomic<bool> stopping = false;
  // Set while `posting` is held exclusively: the threads run the work posted before that, and end.
  std::atomic<bool> ended = false;
  std::shared_mutex posting;

  mutable std::mutex mutex;
  // Under the mutex: connections whose coroutine runs.
  std::unordered_set<std::shared_ptr<Connection>> connections;
  std::condition_variable none_left;
  std::atomic<int64_t> accepted = 0, refused = 0, dropped_stalled = 0;
  std::atomic<size_t> body_bytes = 0;  // of all BodyClaims, at most max_bodies_bytes
};

// The bytes of one request's body that count towards max_bodies_bytes.
class BodyClaim {
 public:
  explicit BodyClaim(ServerState& state) : state_(state) {}
  BodyClaim(const BodyClaim&)            = delete;
  BodyClaim& operator=(const BodyClaim&) = delete;
  ~BodyClaim() { release(); }

  // Raises the claim to `bytes`. False, without a change, where all claims together would exceed the limit.
  bool raise_to(size_t bytes) {
    if (bytes <= bytes_) return true;
    const size_t more = bytes - bytes_;
    size_t claimed    = state_.body_bytes;
    do {
      if (more > state_.options.max_bodies_bytes - claimed) return false;
    } while (!state_.body_bytes.compare_exchange_weak(claimed, claimed + more));
    bytes_ = bytes;
    return true;
  }
  void release() { state_.body_bytes -= std::exchange(bytes_, 0); }

 private:
  ServerState& state_;
  size_t bytes_ = 0;
};

}  // namespace fathom::http
