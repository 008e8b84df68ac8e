#include "comm/tcp_group.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "comm/tcp_links.h"
#include "core/expect.h"

namespace fathom::comm {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using GroupClock = std::chrono::steady_clock;

// How long a rank that is late with an operation has to say that it waits for somebody else.
constexpr std::chrono::milliseconds kAnswerTime{300};

// Over the connection beside the messages'.
struct Control {
  enum Kind : uint32_t {
    bye,      // the rank destroys its group
    failed,   // the rank gave up: cause, culprit and text of its error
    ask,      // are you in an operation, and for whom do you wait?
    waiting,  // the answer: for `rank`
  };
  uint32_t kind     = bye;
  uint8_t cause     = 0;
  uint8_t operation = 0;
  uint16_t unused   = 0;
  int32_t rank      = 0;
  char text[244]    = {};
};

class TcpGroup final : public Group {
 public:
  TcpGroup(const Rendezvous& at, const GroupOptions& options, const std::vector<TcpLink>& links)
      : Group(at.rank, at.size, options) {
    peers_.reserve(links.size());
    for (const TcpLink& link : links) peers_.emplace_back(io_, link);
    for (int rank = 0; rank < size(); ++rank)
      if (rank != this->rank()) listen_to(rank);
  }

  ~TcpGroup() override { tell_all({.kind = Control::bye}); }

  void limit_sending(int64_t bytes_per_s) {
    const auto rate = static_cast<uint64_t>(bytes_per_s);
    for (int rank = 0; rank < size(); ++rank)
      if (rank != this->rank())
        FATHOM_SYSTEM(setsockopt(peer(rank).messages.native_handle(), SOL_SOCKET, SO_MAX_PACING_RATE, &rate,
                                 sizeof rate));
  }

 private:
  struct Peer {
    Peer(asio::io_context& io, const TcpLink& link) : messages(io), control(io) {
      error_code ignored;
      if (link.messages >= 0) messages.assign(tcp::v4(), link.messages, ignored);
      if (link.control >= 0) {
        control.assign(tcp::v4(), link.control, ignored);
        control.non_blocking(true, ignored);
      }
    }
    tcp::socket messages, control;
    Control heard;                // the message that is being received
    bool left     = false;        // it said goodbye
    bool broken   = false;        // no more messages
    int waits_for = -1;           // its answer to the last question
    std::array<Call, 2> headers;  // sent and received, of the present exchange
  };

  // The present exchange.
  struct Exchange {
    const Call& call;
    std::vector<int> waits_for;  // a rank for each message that is not through
    std::optional<GroupError> error;
  };

  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }

  void exchange(const Call& call, std::span<const Outgoing> outgoing,
                std::span<const Incoming> incoming) override {
    Exchange now{.call = call, .waits_for = {}, .error = {}};
    exchange_ = &now;
    for (const Outgoing& out : outgoing) send(now, out);
    for (const Incoming& in : incoming) receive(now, in);
    now.error = error_;
    if (!run(now, GroupClock::now() + timeout())) find_who_is_late(now);
    if (!now.waits_for.empty()) give_up(now);
    exchange_ = nullptr;
    if (now.error) throw GroupError(*now.error);
  }

  // Runs handlers until the exchange is over. False: the deadline came first.
  bool run(const Exchange& now, GroupClock::time_point deadline) {
    const auto over = [&] { return now.waits_for.empty() || now.error; };
    io_.restart();
    while (!over() && io_.run_one_until(deadline) > 0) {
    }
    return over();
  }

  void send(Exchange& now, const Outgoing& out) {
    Peer& to      = peer(out.to);
    to.headers[0] = header_of(now.call, out.bytes.size());
    now.waits_for.push_back(out.to);
    const std::array<asio::const_buffer, 2> buffers{asio::buffer(&to.headers[0], sizeof(Call)),
                                                    asio::buffer(out.bytes.data(), out.bytes.size())};
    asio::async_write(to.messages, buffers, [this, rank = out.to](const error_code& error, size_t) {
      error ? broke(rank, error) : through(rank);
    });
  }

  void receive(Exchange& now, const Incoming& in) {
    now.waits_for.push_back(in.from);
    Peer& from = peer(in.from);
    asio::async_read(
        from.messages, asio::buffer(&from.headers[1], sizeof(Call)),
        [this, in](const error_code& error, size_t) { error ? broke(in.from, error) : receive_body(in); });
  }

  void receive_body(const Incoming& in) {
    Peer& from = peer(in.from);
    if (const Call mine = header_of(exchange_->call, in.bytes.size()); from.headers[1] != mine) {
      return fail(differs(mine, in.from, from.headers[1]));
    }
    asio::async_read(from.messages, asio::buffer(in.bytes.data(), in.bytes.size()),
                     [this, rank = in.from](const error_code& error, size_t) {
                       error ? broke(rank, error) : through(rank);
                     });
  }

  void through(int rank) {
    auto& waits_for = exchange_->waits_for;
    waits_for.erase(std::find(waits_for.begin(), waits_for.end(), rank));
  }

  // The other connection says why: the rank left, gave up, or died.
  void broke(int rank, const error_code& error) {
    if (error == asio::error::operation_aborted) return;  // by give_up()
    peer(rank).broken = true;
    if (peer(rank).left) fail(gone(exchange_->call, rank, GroupError::Cause::left));
  }

  // The first error ends the exchange and all later ones.
  void fail(const GroupError& error) {
    if (!error_) error_ = error;
    if (!exchange_->error) exchange_->error = error_;
  }

  // Always waits for what the rank says beside its messages; and hears of its end.
  void listen_to(int rank) {
    Peer& from = peer(rank);
    asio::async_read(from.control, asio::buffer(&from.heard, sizeof(Control)),
                     [this, rank](const error_code& error, size_t) {
                       if (error == asio::error::operation_aborted) return;
                       if (error)
                         fail(gone(exchange_->call, rank, GroupError::Cause::died));
                       else if (hear(rank, peer(rank).heard))
                         listen_to(rank);
                     });
  }

  // False: nothing more will come.
  bool hear(int rank, Control& said) {
    switch (said.kind) {
      case Control::bye:
        peer(rank).left = true;
        if (peer(rank).broken) fail(gone(exchange_->call, rank, GroupError::Cause::left));
        return false;
      case Control::failed:
        said.text[sizeof said.text - 1] = 0;
        fail({static_cast<GroupError::Cause>(said.cause), said.rank, static_cast<Operation>(said.operation),
              said.text});
        return true;
      case Control::ask:
        if (!exchange_->waits_for.empty())
          tell(rank, {.kind = Control::waiting, .rank = exchange_->waits_for.front()});
        return true;
      case Control::waiting:
        peer(rank).waits_for = said.rank;
        return true;
    }
    return true;
  }

  // Asks everybody for whom they wait, and follows the answers to the rank that does not answer.
  void find_who_is_late(Exchange& now) {
    for (Peer& other : peers_) other.waits_for = -1;
    tell_all({.kind = Control::ask});
    if (run(now, GroupClock::now() + kAnswerTime)) return;
    int rank = now.waits_for.front();
    for (int steps = 0; steps < size() && rank != this->rank(); ++steps) {
      if (peer(rank).waits_for < 0) return fail(late(now.call, rank));
      rank = peer(rank).waits_for;
    }
    fail(waits_in_a_circle(now.call, now.waits_for.front()));
  }

  // Tells the others why, and takes the caller's memory back from the sockets.
  void give_up(Exchange& now) {
    Control why{.kind      = Control::failed,
                .cause     = static_cast<uint8_t>(now.error->cause()),
                .operation = static_cast<uint8_t>(now.error->operation()),
                .rank      = now.error->rank()};
    const std::string text = now.error->what();
    std::memcpy(why.text, text.data(), std::min(text.size(), sizeof why.text - 1));
    tell_all(why);
    for (Peer& other : peers_) {
      error_code ignored;
      other.messages.close(ignored);
    }
    io_.restart();
    io_.poll();  // the handlers of what was cut off
  }

  void tell_all(const Control& message) {
    for (int rank = 0; rank < size(); ++rank)
      if (rank != this->rank()) tell(rank, message);
  }
  // Without waiting: a rank so far behind that it has not read earlier ones need not be told more.
  void tell(int rank, const Control& message) {
    error_code ignored;
    if (!peer(rank).left)
      peer(rank).control.send(asio::buffer(&message, sizeof message), MSG_NOSIGNAL, ignored);
  }

  asio::io_context io_{1};
  std::vector<Peer> peers_;
  Exchange* exchange_ = nullptr;
  std::optional<GroupError> error_;  // the first
};

// A whole number from a variable; `otherwise` where that is not set.
Result<std::optional<int64_t>> whole_number(const char* name, int64_t least, int64_t most) {
  const char* text = std::getenv(name);
  if (!text || !*text) return std::optional<int64_t>();
  int64_t value        = 0;
  const auto view      = std::string_view(text);
  const auto [end, ec] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (ec != std::errc() || end != view.data() + view.size() || value < least || value > most)
    return Error{fmt::format("{}={}: a whole number from {} to {} is expected", name, text, least, most)};
  return std::optional(value);
}

}  // namespace

Result<std::optional<Rendezvous>> rendezvous_from_environment() {
  const auto size = whole_number("WORLD_SIZE", 1, 4096);
  if (!size) return size.error();
  if (!*size) return std::optional<Rendezvous>();
  const auto rank = whole_number("RANK", 0, **size - 1);
  if (!rank) return rank.error();
  const auto port = whole_number("MASTER_PORT", 1, 65535);
  if (!port) return port.error();
  const char* address = std::getenv("MASTER_ADDR");
  if (!*rank || !*port || !address || !*address)
    return Error{
        "WORLD_SIZE is set, but not all of RANK, MASTER_ADDR and MASTER_PORT: `fathom launch` sets them"};
  return std::optional(Rendezvous{.address = address,
                                  .port    = static_cast<int>(**port),
                                  .rank    = static_cast<int>(**rank),
                                  .size    = static_cast<int>(**size)});
}

Result<GroupOptions> group_options_from_environment() {
  const auto seconds = whole_number("FATHOM_GROUP_TIMEOUT", 1, 86'400);
  if (!seconds) return seconds.error();
  GroupOptions options;
  if (*seconds) options.timeout = std::chrono::seconds(**seconds);
  return options;
}

int free_tcp_port() {
  asio::io_context io;
  return tcp::acceptor(io, tcp::endpoint(asio::ip::address_v4::any(), 0)).local_endpoint().port();
}

std::unique_ptr<Group> join_tcp_group(const Rendezvous& rendezvous, const GroupOptions& options) {
  FATHOM_EXPECT(rendezvous.size >= 1 && rendezvous.rank >= 0 && rendezvous.rank < rendezvous.size,
                "a rank is from 0 to the group's size - 1");
  const auto links =
      rendezvous.size == 1 ? std::vector<TcpLink>(1) : connect_ranks(rendezvous, options.timeout);
  return std::make_unique<TcpGroup>(rendezvous, options, links);
}

void limit_sending(Group& group, int64_t bytes_per_s) {
  auto* const over_tcp = dynamic_cast<TcpGroup*>(&group);
  FATHOM_EXPECT(over_tcp, "only the sockets of a group over TCP can be paced");
  FATHOM_EXPECT(bytes_per_s > 0, "a rate is above 0 bytes a second");
  over_tcp->limit_sending(bytes_per_s);
}

}  // namespace fathom::comm
