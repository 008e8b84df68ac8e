// One connection of the server: a coroutine that reads requests, hands them to the handler and writes the
// answers. Private to server.cpp.
//
// overdue(), on_strand() and post() may be called from any thread. All other functions run on the
// connection's strand, one at a time.
#pragma once

#include <atomic>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/server_state.h"

namespace fathom::http {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<ServerState> state, Socket socket, const tcp::endpoint& peer);

  // Runs for the connection's whole life. `refused`: answers 503, because too many connections are open.
  Task<void> serve(bool refused);

  void drop();
  void drop_if_idle() {
    if (idle_) drop();
  }
  Strand strand() { return socket_.get_executor(); }
  // Whether expire() has something to do.
  bool overdue(Clock::rep now) const {
    return paused_ || read_deadline_ <= now || write_deadline_ <= now || ping_due_ <= now;
  }
  void expire();

  // The functions of an Exchange. `number` is its request's; once that is answered they do nothing.
  void respond(uint64_t number, int status, const std::vector<Header>& headers, std::string_view body);
  void begin_stream(uint64_t number, int status, const std::vector<Header>& headers,
                    std::optional<Ping> ping);
  void write(uint64_t number, std::string_view piece);
  void end(uint64_t number);
  void on_gone(uint64_t number, std::function<void()> gone);
  void fail(uint64_t number, std::string_view message);

  // Runs `work` at once where the caller is on the strand, otherwise posts it there.
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
  using Parser   = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using Deadline = std::atomic<Clock::rep>;

  static constexpr auto kNever = std::numeric_limits<Clock::rep>::max();

  // Of an answer: no request yet; the handler has the request; the stream has begun; the whole answer is in
  // outbox_.
  enum class Phase { reading, preparing, streaming, whole };

  Task<std::optional<Request>> read_request();
  Task<bool> read_on(Parser& parser, bool head_only);
  Task<void> read_some();
  Task<void> answer_written();
  bool polled(short events);
  Task<void> linger();
  std::optional<Request> request_of(const Parser& parser);
  void hand_over(Request request);
  void refuse(int status, std::string_view message);
  void refuse(error_code error);
  bool claim_body(size_t bytes);
  // Counts a client that the kernel has given up (TCP_USER_TIMEOUT, keepalive).
  void count_stalled(error_code error) {
    if (error == net::error::timed_out && !closed_) ++state_->dropped_stalled;
  }

  template <class Work>
  void run(uint64_t number, const Work& work);
  bool at(uint64_t number, Phase phase) const { return number == number_ && phase == phase_; }
  void add_head(int status, const std::vector<Header>& headers);
  void answer_is_whole();

  void flush_soon();
  void send();
  size_t unsent() const { return outbox_.size() + sending_.size() - sent_; }

  // Sets the deadline for what is read next.
  void allow(Clock::duration duration) {
    timed_out_     = false;
    read_deadline_ = after(duration);
  }

  const std::shared_ptr<ServerState> state_;
  Socket socket_;
  const std::string peer_;
  boost::beast::flat_buffer input_;  // read, not parsed
  BodyClaim body_claim_;             // of the request that is read or handed over
  Deadline read_deadline_ = kNever, write_deadline_ = kNever, ping_due_ = kNever;
  bool idle_      = false;  // no byte of the next request has arrived
  bool timed_out_ = false;  // the read deadline passed
  // Nothing is read, so the socket does not report when the client leaves; expire() polls for that.
  std::atomic<bool> paused_ = false;
  bool eof_                 = false;
  bool closed_              = false;

  uint64_t number_ = 0;  // of the request that is being answered
  Phase phase_     = Phase::reading;
  bool http11_     = true;
  bool head_only_  = false;  // HEAD
  bool keep_alive_ = false;
  std::optional<Ping> ping_;  // of a stream
  std::function<void()> gone_;

  std::string outbox_, sending_;  // the kernel has taken sent_ bytes of sending_
  size_t sent_  = 0;
  bool writing_ = false;
};

}  // namespace fathom::http
