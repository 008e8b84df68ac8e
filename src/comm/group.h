// A group of ranks that work together: collectives and messages on host memory.
//
// The ranks are threads of one process (comm/thread_group.h) or processes (comm/tcp_group.h). Every rank
// calls the same operations in the same order, from one thread at a time.
//
// Results are the same bits on all ranks, in every run, whatever the backend and the size of the message: an
// element of a reduction is x0 + x1 + x2 + ..., in the order of ranks. 16-bit formats are summed in fp32 and
// rounded once.
//
// No operation waits for ever. Where a rank dies, hangs, leaves or calls something else, the others throw a
// GroupError that names the rank and the operation, and from then on the group is broken: every operation
// throws the same error.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace fathom::comm {

enum class Operation : uint8_t {
  join,
  barrier,
  broadcast,
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  message,  // send, receive, send_receive
};
const char* to_string(Operation operation);

enum class Reduction : uint8_t { sum, max, min };
const char* to_string(Reduction reduction);

// What all ranks of an operation must agree on. It travels before each message.
struct Call {
  Operation operation = Operation::barrier;
  DType dtype         = DType::uint8;
  Reduction reduction = Reduction::sum;
  uint8_t unused      = 0;
  int32_t root        = -1;
  uint64_t bytes      = 0;  // of the operation's data on one rank; of a message: its own
  uint64_t sequence   = 0;  // counts collectives; 0 of a message

  bool operator==(const Call&) const = default;
};
std::string to_string(const Call& call);

class GroupError : public std::runtime_error {
 public:
  enum class Cause : uint8_t {
    died,       // its process ended, or its connection broke
    timed_out,  // it did not come to the operation, or did not answer, in time
    left,       // it destroyed its group while others still needed it
    mismatch,   // it called another operation, or the same with another size, type or root
  };
  GroupError(Cause cause, int rank, Operation operation, const std::string& text)
      : std::runtime_error(text), cause_(cause), rank_(rank), operation_(operation) {}
  Cause cause() const { return cause_; }
  int rank() const { return rank_; }  // whose fault it is
  Operation operation() const { return operation_; }

 private:
  Cause cause_;
  int rank_;
  Operation operation_;
};
const char* to_string(GroupError::Cause cause);

struct GroupOptions {
  // How long an operation waits for the other ranks. Longer than ranks may lie apart in their work.
  std::chrono::milliseconds timeout{30'000};
};

class Group {
 public:
  virtual ~Group()               = default;
  Group(const Group&)            = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Returns after all ranks have come to it.
  void barrier();

  // data of `root` becomes the data of all.
  template <class T>
  void broadcast(std::span<T> data, int root) {
    broadcast_bytes(std::as_writable_bytes(data), root);
  }

  // Every rank gets the sum (or the largest, or smallest) of all ranks' data. T: double, float, bf16, fp16,
  // int64_t, int32_t.
  template <class T>
  void all_reduce(std::span<T> data, Reduction reduction = Reduction::sum) {
    all_reduce_bytes(std::as_writable_bytes(data), dtype_of<T>, reduction);
  }

  // all: size() pieces, piece r from rank r. `mine` may be its own piece of `all`.
  template <class T>
  void all_gather(std::span<const T> mine, std::span<T> all) {
    all_gather_bytes(std::as_bytes(mine), std::as_writable_bytes(all));
  }

  // all: size() pieces. Rank r gets the sum of all ranks' piece r. `mine` may not overlap `all`.
  template <class T>
  void reduce_scatter(std::span<const T> all, std::span<T> mine, Reduction reduction = Reduction::sum) {
    reduce_scatter_bytes(std::as_bytes(all), std::as_writable_bytes(mine), dtype_of<T>, reduction);
  }

  // Both: size() pieces. Piece r of `out` goes to rank r, whose piece for this rank becomes piece r of `in`.
  // They may not overlap.
  template <class T>
  void all_to_all(std::span<const T> out, std::span<T> in) {
    all_to_all_bytes(std::as_bytes(out), std::as_writable_bytes(in));
  }

  // A message from this rank to another, which must receive as many bytes. send() may wait for the receiver.
  template <class T>
  void send(std::span<const T> data, int to) {
    message_bytes(std::as_bytes(data), to, {}, -1);
  }
  template <class T>
  void receive(std::span<T> data, int from) {
    message_bytes({}, -1, std::as_writable_bytes(data), from);
  }
  // Both at once, so that neighbours may send to each other.
  template <class T>
  void send_receive(std::span<const T> out, int to, std::span<T> in, int from) {
    message_bytes(std::as_bytes(out), to, std::as_writable_bytes(in), from);
  }

 protected:
  struct Outgoing {
    int to = 0;
    std::span<const std::byte> bytes;
  };
  struct Incoming {
    int from = 0;
    std::span<std::byte> bytes;
  };

  Group(int rank, int size, const GroupOptions& options);

  // Moves all of these, at once, and returns when that is done; throws GroupError. Messages between two ranks
  // keep their order.
  virtual void exchange(const Call& call, std::span<const Outgoing> outgoing,
                        std::span<const Incoming> incoming) = 0;

  std::chrono::milliseconds timeout() const { return timeout_; }
  // What travels before a message.
  static Call header_of(const Call& call, size_t bytes);

  // What this rank says of another that keeps it from completing the call.
  GroupError late(const Call& call, int rank) const;
  GroupError waits_in_a_circle(const Call& call, int rank) const;
  GroupError gone(const Call& call, int rank, GroupError::Cause cause) const;
  GroupError differs(const Call& call, int rank, const Call& theirs) const;

 private:
  void broadcast_bytes(std::span<std::byte> data, int root);
  void all_reduce_bytes(std::span<std::byte> data, DType dtype, Reduction reduction);
  void all_gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all);
  void reduce_scatter_bytes(std::span<const std::byte> all, std::span<std::byte> mine, DType dtype,
                            Reduction reduction);
  void all_to_all_bytes(std::span<const std::byte> out, std::span<std::byte> in);
  void message_bytes(std::span<const std::byte> out, int to, std::span<std::byte> in, int from);

  Call next_call(Operation operation, size_t bytes);
  void run(const Call& call);  // the exchange of outgoing_ and incoming_, which it empties
  void add_to_all(std::span<const std::byte> bytes);
  std::span<std::byte> scratch(size_t bytes);
  // Scratch memory for a piece of each other rank; adds to incoming_. Own piece: null.
  std::vector<std::byte*> receive_from_all(size_t bytes);

  int rank_, size_;
  std::chrono::milliseconds timeout_;
  uint64_t collectives_ = 0;
  std::optional<GroupError> broken_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::vector<std::byte> scratch_;
};

}  // namespace fathom::comm
