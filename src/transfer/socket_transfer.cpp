#include "transfer/socket_transfer.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "transfer/shared_memory.h"

// g++ 12 reports a false mismatch of new and delete where it inlines one coroutine into another, because
// coroutine frames have their own operator delete.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace fathom::transfer {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kTuple        = asio::as_tuple(asio::use_awaitable);
constexpr uint64_t kProtocol = 0x3172666e72746166;  // "fatrnfr1"
constexpr auto kTick         = std::chrono::milliseconds(20);

enum class Kind : uint32_t {
  bytes,     // of a slice, and its immediate
  in_place,  // an immediate; the writer has copied the bytes
  renew,     // the lease of a transfer
  claim,     // asks for leave to copy; answered with one byte, 1: granted
};

// Both ends have the same byte order: every machine that the engine runs on is little-endian.
struct Frame {
  uint64_t protocol = kProtocol;
  Kind kind         = Kind::bytes;
  uint32_t slice    = 0;
  Tag tag;
  uint64_t checksum = 0;
  uint32_t failed = 0, reserved = 0;
  uint64_t bytes = 0;  // that follow

  Immediate immediate() const {
    return {.tag = tag, .slice = slice, .failed = failed != 0, .checksum = checksum};
  }
};
static_assert(sizeof(Frame) == 56 && std::is_trivially_copyable_v<Frame>);

Frame frame_of(Kind kind, const Immediate& immediate, size_t bytes) {
  return {.kind     = kind,
          .slice    = immediate.slice,
          .tag      = immediate.tag,
          .checksum = immediate.checksum,
          .failed   = immediate.failed ? 1u : 0u,
          .bytes    = bytes};
}

}  // namespace

struct LandingServer::State {
  State(Landing& l) : landing(l), acceptor(io), tick(io) {}

  asio::awaitable<void> accept() {
    for (;;) {
      auto [error, socket] = co_await acceptor.async_accept(kTuple);
      if (!acceptor.is_open()) co_return;
      if (!error) {
        asio::co_spawn(io, receive(std::move(socket)), asio::detached);
        continue;
      }
      tick.expires_after(kTick);  // out of file descriptors, for instance: not at full speed
      co_await tick.async_wait(kTuple);
    }
  }

  // The bytes of a slice are read aside and copied under the landing's lock: a slow connection never holds a
  // page that was granted to somebody else meanwhile. A peer that is refused is disconnected.
  asio::awaitable<void> receive(tcp::socket socket) {
    const WriterId writer = ++writers;
    std::vector<std::byte> bytes;
    bool copies = false;  // it has a claim, and its end is open
    for (;;) {
      Frame frame;
      const auto [ended, n] = co_await asio::async_read(socket, asio::buffer(&frame, sizeof frame), kTuple);
      if (ended) copies = false;  // its end is closed; Asio waits for ever where one reads on
      if (ended || frame.protocol != kProtocol || frame.bytes > static_cast<uint64_t>(landing.page_bytes()))
        break;
      bytes.resize(frame.bytes);
      const auto [torn, m] = co_await asio::async_read(socket, asio::buffer(bytes), kTuple);
      if (torn) copies = false;
      if (torn) break;
      if (frame.kind == Kind::claim) {
        const uint8_t granted = landing.claim(frame.tag, writer) ? 1 : 0;
        copies                = copies || granted != 0;
        const auto [error, n] = co_await asio::async_write(socket, asio::buffer(&granted, 1), kTuple);
        if (error || granted == 0) break;
        continue;
      }
      if (frame.kind == Kind::renew) {
        if (!landing.renew(frame.tag, Clock::now())) break;
        continue;
      }
      const auto answer = frame.kind == Kind::bytes
                              ? landing.arrive(frame.immediate(), bytes, Clock::now())
                              : landing.arrive_in_place(frame.immediate(), writer, Clock::now());
      if (answer == Landing::Answer::refused) break;
    }
    // Closing tells the writer, at its next write. One that copies by itself is gone when it has closed its
    // end.
    while (copies) {
      bytes.resize(4096);
      if (const auto [error, n] = co_await socket.async_read_some(asio::buffer(bytes), kTuple); error) break;
    }
    landing.writer_gone(writer);
  }

  asio::awaitable<void> expire() {
    asio::steady_timer timer(io);
    for (;;) {
      timer.expires_after(kTick);
      co_await timer.async_wait(kTuple);
      landing.expire(Clock::now());
    }
  }

  Landing& landing;
  asio::io_context io{1};
  tcp::acceptor acceptor;
  asio::steady_timer tick;
  WriterId writers = 0;
  uint16_t port    = 0;
  std::thread thread;
};

LandingServer::LandingServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

LandingServer::~LandingServer() {
  state_->io.stop();
  state_->thread.join();
}

uint16_t LandingServer::port() const { return state_->port; }

Result<std::unique_ptr<LandingServer>> LandingServer::listen(Landing& landing, const std::string& host,
                                                             uint16_t port) {
  auto state            = std::make_unique<State>(landing);
  tcp::acceptor& accept = state->acceptor;
  error_code error;
  tcp::resolver resolver(state->io);
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (!error) accept.open(found->endpoint().protocol(), error);
  if (!error) accept.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) accept.bind(found->endpoint(), error);
  if (!error) accept.listen(asio::socket_base::max_listen_connections, error);
  if (error)
    return Error{
        fmt::format("{}:{} cannot be listened on for KV transfers: {}", host, port, error.message())};
  state->port = accept.local_endpoint().port();
  asio::co_spawn(state->io, state->accept(), asio::detached);
  asio::co_spawn(state->io, state->expire(), asio::detached);
  state->thread = std::thread([&io = state->io] { io.run(); });
  return std::unique_ptr<LandingServer>(new LandingServer(std::move(state)));
}

namespace {

class SocketTransfer final : public Transfer {
 public:
  SocketTransfer(Address address, std::chrono::nanoseconds timeout)
      : address_(std::move(address)), timeout_(timeout) {}

  Status connect() {
    error_code error;
    tcp::resolver resolver(io_);
    const auto found = resolver.resolve(address_.host, std::to_string(address_.port), error);
    if (error) return failure(error);
    if (const Status done = run([&](auto handler) { asio::async_connect(socket_, found, handler); }); !done)
      return done;
    socket_.set_option(tcp::no_delay(true), error);
    if (address_.memory.empty()) return Ok();
    auto memory = SharedMemory::open_shared(address_.memory);
    if (!memory) return memory.error();
    memory_ = std::move(memory).value();
    return Ok();
  }

  Status put(const Grant& grant, const Immediate& immediate, std::span<const std::byte> bytes) override {
    if (!memory_) return send(frame_of(Kind::bytes, immediate, bytes.size()), bytes);
    if (!(claimed_ == immediate.tag)) {
      if (const Status sent = send(frame_of(Kind::claim, immediate, 0), {}); !sent) return sent;
      uint8_t granted = 0;
      if (const Status read =
              run([&](auto handler) { asio::async_read(socket_, asio::buffer(&granted, 1), handler); });
          !read)
        return read;
      if (granted == 0) return Error{"the transfer has ended before it began"};
      claimed_ = immediate.tag;
    }
    // Once the connection is closed, its owner counts on it that nothing more is copied.
    if (!socket_.is_open()) return closed();
    if (!immediate.failed) {
      const Range range = grant.slices[immediate.slice];
      const auto all    = memory_->bytes();
      if (range.offset + range.bytes > all.size() || bytes.size() > range.bytes)
        return Error{"a slice lies outside of the peer's memory: are both of one version?"};
      if (!bytes.empty()) std::memcpy(all.data() + range.offset, bytes.data(), bytes.size());
      std::atomic_thread_fence(std::memory_order_release);
    }
    return send(frame_of(Kind::in_place, immediate, 0), {});
  }

  Status renew(const Grant& grant) override { return send(frame_of(Kind::renew, {.tag = grant.tag}, 0), {}); }

 private:
  Status failure(const error_code& error) {
    error_code ignored;
    socket_.close(ignored);
    return Error{fmt::format("{}:{}: {}", address_.host, address_.port, error.message())};
  }

  Status closed() const {
    return Error{fmt::format("the connection to {}:{} is closed", address_.host, address_.port)};
  }

  // Starts an operation and waits for it, within the time.
  Status run(auto&& start) {
    std::optional<error_code> result;
    start([&](const error_code& error, const auto&...) { result = error; });
    io_.restart();
    io_.run_for(timeout_);
    if (!result) {
      error_code ignored;
      socket_.close(ignored);
      io_.run();
      return Error{fmt::format("{}:{} took nothing for {:.3g} s", address_.host, address_.port,
                               std::chrono::duration<double>(timeout_).count())};
    }
    if (*result) return failure(*result);
    return Ok();
  }

  Status send(const Frame& frame, std::span<const std::byte> bytes) {
    if (!socket_.is_open()) return closed();
    const std::array<asio::const_buffer, 2> pieces = {asio::buffer(&frame, sizeof frame),
                                                      asio::buffer(bytes.data(), bytes.size())};
    return run([&](auto handler) { asio::async_write(socket_, pieces, handler); });
  }

  const Address address_;
  const std::chrono::nanoseconds timeout_;
  asio::io_context io_{1};
  tcp::socket socket_{io_};
  std::shared_ptr<const SharedMemory> memory_;
  Tag claimed_;
};

}  // namespace

Result<std::unique_ptr<Transfer>> connect(const Address& address, std::chrono::nanoseconds timeout) {
  auto transfer = std::make_unique<SocketTransfer>(address, timeout);
  if (const Status connected = transfer->connect(); !connected) return connected.error();
  return std::unique_ptr<Transfer>(std::move(transfer));
}

}  // namespace fathom::transfer
