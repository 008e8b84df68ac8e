// Collectives behind the caller's work: a thread makes them, in the order in which they were started (torch's
// async_op=True, a NCCL communicator's stream).
//
//   AsyncGroup async(group, AsyncGroup::Mode::overlapped);
//   const auto work = async.start([&](Group& g) { g.all_reduce(gradients); });
//   compute();         // meanwhile the memory of `gradients` is the collective's
//   async.wait(work);
//
// Copies into sockets and sums take a CPU, as the caller's work does. So a collective is hidden for free only
// where a CPU is left for its thread, or while it waits for another rank or for the network.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/group.h"

namespace fathom::comm {

class AsyncGroup {
 public:
  enum class Mode {
    blocking,    // start() returns when the collective is over: the same program without overlap
    overlapped,  // start() returns at once
  };
  using Collective = std::function<void(Group&)>;
  struct Work {
    uint64_t number = 0;  // 0: nothing to wait for
  };

  // `group` outlives this, and nobody else uses it before all work is over. `cpu`: where the thread runs;
  // else where the caller may.
  AsyncGroup(Group& group, Mode mode, std::optional<int> cpu = {});
  ~AsyncGroup();  // after what was started
  AsyncGroup(const AsyncGroup&)            = delete;
  AsyncGroup& operator=(const AsyncGroup&) = delete;

  Group& group() { return group_; }
  bool overlapped() const { return thread_.joinable(); }

  // What `collective` throws, start() (blocking) or every later wait() (overlapped) throws. No work that
  // comes after it is done.
  Work start(Collective collective);
  // Returns when this work, and so all before it, is over.
  void wait(Work work);

  // Nanoseconds since the last take_times(). All work must be over.
  struct Times {
    int64_t communication = 0;  // within collectives, waits for other ranks and for the network included
    int64_t cpu           = 0;  // of a CPU, within collectives: what overlap can move, but not hide
    int64_t exposed       = 0;  // that the caller waited for collectives

    // The part of communication that went on while the caller worked: 0 of a program without overlap.
    double hidden_share() const;
  };
  Times take_times();

 private:
  void perform(const Collective& collective);
  void serve();

  Group& group_;
  std::mutex mutex_;  // of what follows
  std::condition_variable started_, over_;
  std::deque<Collective> queue_;
  uint64_t last_started_ = 0, last_over_ = 0;
  std::exception_ptr error_;  // the first
  bool ending_ = false;
  Times times_;
  std::thread thread_;
};

}  // namespace fathom::comm
