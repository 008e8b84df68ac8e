// 1. Rank 0 listens at the rendezvous, the others each on a port of their own.
// 2. They tell rank 0 who they are and where they listen (Greeting::join).
// 3. When all have come, rank 0 sends everybody the table of addresses.
// 4. Every rank connects twice to each lower one (Greeting::messages, Greeting::control).
// Who connects and is no rank of this group (another program, another group) is turned away.
#include "comm/tcp_links.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "core/expect.h"

namespace fathom::comm {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using TcpClock = std::chrono::steady_clock;

constexpr uint64_t kMagic =
    0x316d6d6f63687466;  // "fthcomm1": the protocol and its version, and the byte order

// How long rank 0 stays to tell ranks that are still starting why there will be no group.
constexpr std::chrono::seconds kTellLateRanks{10};

struct Greeting {
  enum Kind : uint32_t { join, messages, control };
  uint64_t magic = kMagic;
  uint64_t token = 0;  // of the group; rank 0 draws it
  uint32_t kind  = join;
  int32_t rank = 0, size = 0;
  int32_t port = 0;  // where the rank listens
};

struct RankAddress {
  char host[64] = {};
  int32_t port  = 0;
};

// Rank 0's answer, before the table.
struct Answer {
  uint64_t token  = 0;
  int32_t refused = 0;  // then for this cause, by that rank's fault
  int32_t cause = 0, rank = 0;
  char text[236] = {};
};

template <size_t N>
void put_text(char (&to)[N], const std::string& from) {
  const size_t n = std::min(from.size(), N - 1);
  std::memcpy(to, from.data(), n);
  to[n] = 0;
}

class Meeting {
 public:
  Meeting(const Rendezvous& at, std::chrono::milliseconds timeout)
      : at_(at),
        timeout_(timeout),
        deadline_(TcpClock::now() + timeout),
        acceptor_(io_),
        links_(static_cast<size_t>(at.size)) {}

  std::vector<TcpLink> connect() {
    listen();
    if (at_.rank == 0)
      gather();
    else
      report_to_rank0();
    connect_to_lower_ranks();
    accept_higher_ranks();
    std::vector<TcpLink> links(links_.size());
    for (size_t rank = 0; rank < links.size(); ++rank)
      if (links_[rank].messages && links_[rank].control)
        links[rank] = {links_[rank].messages->release(), links_[rank].control->release()};
    return links;
  }

 private:
  struct Sockets {
    std::optional<tcp::socket> messages, control;
  };

  [[noreturn]] void fail(GroupError::Cause cause, int rank, const std::string& text) const {
    throw GroupError(cause, rank, Operation::join, text);
  }
  std::string place() const { return fmt::format("{}:{}", at_.address, at_.port); }
  double seconds() const { return std::chrono::duration<double>(timeout_).count(); }

  // Runs handlers until `done` or the deadline.
  bool run_until(const bool& done) {
    io_.restart();
    while (!done && io_.run_one_until(deadline_) > 0) {
    }
    return done;
  }

  // Addresses of the rendezvous. Waits for no name server longer than the system does.
  tcp::resolver::results_type resolve() {
    error_code error;
    const auto found = tcp::resolver(io_).resolve(at_.address, std::to_string(at_.port), error);
    if (error)
      throw SystemError(fmt::format("the address of rank 0, {}, is unknown: {} (MASTER_ADDR)", at_.address,
                                    error.message()));
    return found;
  }

  void listen() {
    const tcp::endpoint master = *resolve().begin();
    tcp::endpoint mine         = master;
    if (at_.rank != 0) mine.port(0);
    if (!master.address().is_loopback())
      mine.address(master.address().is_v6() ? asio::ip::address(asio::ip::address_v6::any())
                                            : asio::ip::address(asio::ip::address_v4::any()));
    error_code error;
    acceptor_.open(mine.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(mine, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error)
      throw SystemError(fmt::format("rank {} cannot listen at {}:{}: {}; choose another MASTER_PORT",
                                    at_.rank, mine.address().to_string(), mine.port(), error.message()));
  }

  // Accepts connections until `on_greeting` returns true. False: the deadline came first.
  bool accept(std::function<bool(const Greeting&, tcp::socket)> on_greeting) {
    on_greeting_ = std::move(on_greeting);
    met_         = false;
    for (auto& [greeting, socket] : std::exchange(early_, {})) greeted(greeting, std::move(socket));
    if (!met_) {
      accept_next();
      run_until(met_);
    }
    on_greeting_ = nullptr;
    acceptor_.cancel();
    io_.restart();
    io_.poll();
    return met_;
  }

  void accept_next() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket accepted) {
      if (error) return;
      const auto socket   = std::make_shared<tcp::socket>(std::move(accepted));
      const auto greeting = std::make_shared<Greeting>();
      asio::async_read(*socket, asio::buffer(greeting.get(), sizeof(Greeting)),
                       [this, socket, greeting](const error_code& failed, size_t) {
                         if (!failed && greeting->magic == kMagic) greeted(*greeting, std::move(*socket));
                       });
      if (on_greeting_ && !met_) accept_next();
    });
  }

  void greeted(const Greeting& greeting, tcp::socket socket) {
    if (on_greeting_ && !met_)
      met_ = on_greeting_(greeting, std::move(socket));
    else
      early_.emplace_back(greeting, std::move(socket));
  }

  // Rank 0.
  void gather() {
    std::random_device seed;
    token_ = static_cast<uint64_t>(seed()) << 32 | seed();
    std::vector<std::optional<tcp::socket>> joined(static_cast<size_t>(at_.size));
    table_.resize(joined.size());
    put_text(table_[0].host, at_.address);
    table_[0].port = at_.port;
    std::optional<GroupError> error;
    const auto refuse = [&](GroupError::Cause cause, int rank, const std::string& text) {
      error.emplace(cause, rank, Operation::join, text);
      return true;
    };
    const auto missing = [&] {
      std::vector<int> ranks;
      for (int rank = 1; rank < at_.size; ++rank)
        if (!joined[static_cast<size_t>(rank)]) ranks.push_back(rank);
      return ranks;
    };
    std::vector<tcp::socket> refused;
    const auto on_greeting = [&](const Greeting& greeting, tcp::socket socket) {
      if (greeting.kind != Greeting::join) return false;
      if (greeting.size != at_.size || greeting.rank < 1 || greeting.rank >= at_.size) {
        refused.push_back(std::move(socket));
        return refuse(GroupError::Cause::mismatch, greeting.rank,
                      fmt::format("rank {} was started for a group of {} ranks, rank 0 for one of {} "
                                  "(RANK, WORLD_SIZE)",
                                  greeting.rank, greeting.size, at_.size));
      }
      auto& seat = joined[static_cast<size_t>(greeting.rank)];
      if (seat) {
        refused.push_back(std::move(socket));
        return refuse(GroupError::Cause::mismatch, greeting.rank,
                      fmt::format("rank {} came twice to {}: each process needs a RANK of its own, and each "
                                  "group a MASTER_PORT",
                                  greeting.rank, place()));
      }
      error_code unknown;
      const tcp::endpoint from = socket.remote_endpoint(unknown);
      if (unknown) return false;  // gone already
      RankAddress& address = table_[static_cast<size_t>(greeting.rank)];
      put_text(address.host, from.address().to_string());
      address.port = greeting.port;
      seat.emplace(std::move(socket));
      return missing().empty();
    };
    if (!missing().empty() && !accept(on_greeting))
      refuse(GroupError::Cause::timed_out, missing().front(),
             fmt::format("rank{} {} did not come to {} within {:.6g} s", missing().size() > 1 ? "s" : "",
                         fmt::join(missing(), ", "), place(), seconds()));
    Answer answer{.token = token_};
    if (error) {
      answer.refused = 1;
      answer.cause   = static_cast<int32_t>(error->cause());
      answer.rank    = error->rank();
      put_text(answer.text, error->what());
    }
    const auto tell = [&](tcp::socket& socket) {
      error_code ignored;  // whoever is gone is missed when it should connect
      asio::write(socket, asio::buffer(&answer, sizeof answer), ignored);
      if (!error)
        asio::write(socket, asio::buffer(table_.data(), table_.size() * sizeof(RankAddress)), ignored);
    };
    for (auto& socket : joined)
      if (socket) tell(*socket);
    for (auto& socket : refused) tell(socket);
    if (!error) return;
    size_t on_their_way = missing().size() - std::min(refused.size(), missing().size());
    if (on_their_way > 0 && !refused.empty()) {
      deadline_ = std::min(deadline_, TcpClock::now() + kTellLateRanks);
      accept([&](const Greeting& greeting, tcp::socket socket) {
        if (greeting.kind != Greeting::join) return false;
        tell(socket);
        return --on_their_way == 0;
      });
    }
    throw GroupError(*error);
  }

  // The others.
  void report_to_rank0() {
    tcp::socket socket = reach(0, resolve());
    Greeting greeting{.kind = Greeting::join, .rank = at_.rank, .size = at_.size};
    greeting.port = acceptor_.local_endpoint().port();
    greet(socket, greeting, 0);
    Answer answer;
    read(socket, &answer, sizeof answer);
    if (answer.refused) {
      answer.text[sizeof answer.text - 1] = 0;
      fail(static_cast<GroupError::Cause>(answer.cause), answer.rank, answer.text);
    }
    token_ = answer.token;
    table_.resize(static_cast<size_t>(at_.size));
    read(socket, table_.data(), table_.size() * sizeof(RankAddress));
  }

  void connect_to_lower_ranks() {
    for (int rank = 0; rank < at_.rank; ++rank) {
      const RankAddress& address = table_[static_cast<size_t>(rank)];
      // Rank 0 is where it was found before.
      const auto places =
          rank == 0 ? resolve() : tcp::resolver(io_).resolve(address.host, std::to_string(address.port));
      Sockets& link = links_[static_cast<size_t>(rank)];
      for (const auto kind : {Greeting::messages, Greeting::control}) {
        auto& socket = kind == Greeting::messages ? link.messages : link.control;
        socket.emplace(reach(rank, places));
        socket->set_option(tcp::no_delay(true));
        greet(*socket, {.token = token_, .kind = kind, .rank = at_.rank, .size = at_.size}, rank);
      }
    }
  }

  void accept_higher_ranks() {
    const auto first_missing = [&] {
      for (int rank = at_.rank + 1; rank < at_.size; ++rank)
        if (const Sockets& link = links_[static_cast<size_t>(rank)]; !link.messages || !link.control)
          return rank;
      return -1;
    };
    const auto on_greeting = [&](const Greeting& greeting, tcp::socket socket) {
      const bool higher = greeting.rank > at_.rank && greeting.rank < at_.size;
      if (greeting.kind == Greeting::join || greeting.token != token_ || !higher) return false;
      Sockets& link = links_[static_cast<size_t>(greeting.rank)];
      error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      (greeting.kind == Greeting::messages ? link.messages : link.control).emplace(std::move(socket));
      return first_missing() < 0;
    };
    if (first_missing() < 0 || accept(on_greeting)) return;
    fail(GroupError::Cause::timed_out, first_missing(),
         fmt::format("rank {} did not connect to rank {} within {:.6g} s", first_missing(), at_.rank,
                     seconds()));
  }

  // A connection to a rank, which may not listen yet.
  tcp::socket reach(int rank, const tcp::resolver::results_type& places) {
    for (;;) {
      tcp::socket socket(io_);
      error_code error = asio::error::timed_out;
      bool done        = false;
      asio::async_connect(socket, places, [&](const error_code& result, const tcp::endpoint&) {
        error = result;
        done  = true;
      });
      if (!run_until(done)) {
        socket.close();
        finish(done);
      }
      if (done && !error) return socket;
      if (TcpClock::now() >= deadline_)
        fail(GroupError::Cause::timed_out, rank,
             fmt::format("rank {} was not at {} within {:.6g} s: {}", rank,
                         rank == 0 ? place() : std::string("its address"), seconds(), error.message()));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  // Waits for the handler of an operation that was cancelled.
  void finish(const bool& done) {
    io_.restart();
    while (!done && io_.run_one() > 0) {
    }
  }

  void greet(tcp::socket& socket, const Greeting& greeting, int rank) {
    error_code error;
    asio::write(socket, asio::buffer(&greeting, sizeof greeting), error);
    if (error) fail(GroupError::Cause::died, rank, fmt::format("rank {} died while ranks joined", rank));
  }

  // From rank 0.
  void read(tcp::socket& socket, void* to, size_t bytes) {
    bool done = false;
    error_code error;
    asio::async_read(socket, asio::buffer(to, bytes), [&](const error_code& result, size_t) {
      error = result;
      done  = true;
    });
    if (!run_until(done)) {
      socket.close();
      finish(done);
      fail(GroupError::Cause::timed_out, 0,
           fmt::format("rank 0 at {} had not all ranks together within {:.6g} s", place(), seconds()));
    }
    if (error)
      fail(GroupError::Cause::died, 0,
           fmt::format("rank 0 at {} died while ranks joined, or is no rank of Fathom", place()));
  }

  Rendezvous at_;
  std::chrono::milliseconds timeout_;
  TcpClock::time_point deadline_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  std::function<bool(const Greeting&, tcp::socket)> on_greeting_;  // of the accept() that runs
  bool met_ = false;                                               // it has returned true
  std::vector<std::pair<Greeting, tcp::socket>> early_;            // who greeted while nobody waited
  uint64_t token_ = 0;
  std::vector<RankAddress> table_;
  std::vector<Sockets> links_;
};

}  // namespace

std::vector<TcpLink> connect_ranks(const Rendezvous& rendezvous, std::chrono::milliseconds timeout) {
  return Meeting(rendezvous, timeout).connect();
}

}  // namespace fathom::comm
