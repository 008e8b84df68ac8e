#include "comm/thread_group.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/expect.h"

namespace fathom::comm {
namespace {

// Where ranks leave messages for each other. Everything is under one mutex but the copying.
struct MessageBoard {
  struct Message {
    enum { none, posted, copying, received } state = none;
    Call header;
    std::span<const std::byte> bytes;
  };
  struct Seat {
    bool inside = false, left = false;  // in an operation; the rank has no group any more
    int waits_for = 0;                  // while inside
    std::condition_variable changed;
  };

  explicit MessageBoard(int size)
      : seats(static_cast<size_t>(size)), messages(static_cast<size_t>(size) * static_cast<size_t>(size)) {}

  Seat& seat(int rank) { return seats[static_cast<size_t>(rank)]; }
  Message& message(int from, int to) {
    return messages[static_cast<size_t>(from) * seats.size() + static_cast<size_t>(to)];
  }

  std::mutex mutex;
  std::vector<Seat> seats;
  std::vector<Message> messages;
  std::optional<GroupError> error;  // the first
};

class ThreadGroup final : public Group {
 public:
  ThreadGroup(int rank, int size, const GroupOptions& options, std::shared_ptr<MessageBoard> board)
      : Group(rank, size, options), board_(std::move(board)) {}

  ~ThreadGroup() override {
    const std::lock_guard lock(board_->mutex);
    board_->seat(rank()).left = true;
    for (MessageBoard::Seat& seat : board_->seats) seat.changed.notify_one();
  }

 private:
  using Lock = std::unique_lock<std::mutex>;

  void exchange(const Call& call, std::span<const Outgoing> outgoing,
                std::span<const Incoming> incoming) override {
    Lock lock(board_->mutex);
    MessageBoard::Seat& seat = board_->seat(rank());
    seat.inside              = true;
    try {
      move_all(call, outgoing, incoming, lock);
    } catch (const GroupError& error) {
      if (!board_->error) {
        board_->error = error;
        for (MessageBoard::Seat& other : board_->seats) other.changed.notify_one();
      }
      take_back(outgoing, lock);
      seat.inside = false;
      throw GroupError(*board_->error);
    }
    seat.inside = false;
  }

  void move_all(const Call& call, std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                Lock& lock) {
    const auto deadline = std::chrono::steady_clock::now() + timeout();
    for (const Outgoing& out : outgoing) {
      board_->message(rank(), out.to) = {MessageBoard::Message::posted, header_of(call, out.bytes.size()),
                                         out.bytes};
      board_->seat(out.to).changed.notify_one();
    }
    std::vector<bool> received(incoming.size(), false);
    for (bool late = false;;) {
      if (board_->error) throw GroupError(*board_->error);
      int waits_for = -1;
      bool copied   = false;  // without the lock: what was looked at before may have changed
      for (size_t i = 0; i < incoming.size(); ++i) {
        if (received[i]) continue;
        received[i] = receive(call, incoming[i], lock);
        copied |= received[i];
        if (!received[i]) waits_for = incoming[i].from;
      }
      if (copied) continue;
      for (const Outgoing& out : outgoing)
        if (board_->message(rank(), out.to).state != MessageBoard::Message::received) waits_for = out.to;
      if (waits_for < 0) break;
      if (board_->seat(waits_for).left) throw gone(call, waits_for, GroupError::Cause::left);
      board_->seat(rank()).waits_for = waits_for;
      if (late) throw who_is_late(call);
      late = board_->seat(rank()).changed.wait_until(lock, deadline) == std::cv_status::timeout;
    }
    for (const Outgoing& out : outgoing) board_->message(rank(), out.to).state = MessageBoard::Message::none;
  }

  // False: the message is not there yet.
  bool receive(const Call& call, const Incoming& in, Lock& lock) {
    MessageBoard::Message& message = board_->message(in.from, rank());
    if (message.state != MessageBoard::Message::posted) return false;
    if (const Call mine = header_of(call, in.bytes.size()); message.header != mine)
      throw differs(mine, in.from, message.header);
    message.state = MessageBoard::Message::copying;
    lock.unlock();
    if (!in.bytes.empty()) std::memcpy(in.bytes.data(), message.bytes.data(), in.bytes.size());
    lock.lock();
    message.state = MessageBoard::Message::received;
    board_->seat(in.from).changed.notify_one();
    return true;
  }

  // Nobody reads this rank's memory afterwards. A receiver in the middle of a copy ends it first.
  void take_back(std::span<const Outgoing> outgoing, Lock& lock) {
    for (const Outgoing& out : outgoing) {
      MessageBoard::Message& message = board_->message(rank(), out.to);
      board_->seat(rank()).changed.wait(lock,
                                        [&] { return message.state != MessageBoard::Message::copying; });
      message.state = MessageBoard::Message::none;
    }
  }

  // Follows who waits for whom to the rank that is in no operation.
  GroupError who_is_late(const Call& call) const {
    int rank = board_->seat(this->rank()).waits_for;
    for (int steps = 0; steps < size(); ++steps) {
      if (!board_->seat(rank).inside) return late(call, rank);
      rank = board_->seat(rank).waits_for;
    }
    return waits_in_a_circle(call, board_->seat(this->rank()).waits_for);
  }

  std::shared_ptr<MessageBoard> board_;
};

}  // namespace

std::vector<std::unique_ptr<Group>> make_thread_groups(int size, const GroupOptions& options) {
  FATHOM_EXPECT(size >= 1, "a group has at least one rank");
  const auto board = std::make_shared<MessageBoard>(size);
  std::vector<std::unique_ptr<Group>> groups;
  for (int rank = 0; rank < size; ++rank)
    groups.push_back(std::make_unique<ThreadGroup>(rank, size, options, board));
  return groups;
}

}  // namespace fathom::comm
