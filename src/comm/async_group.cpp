#include "comm/async_group.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "core/cpus.h"
#include "core/expect.h"

namespace fathom::comm {
namespace {

int64_t nanoseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

AsyncGroup::AsyncGroup(Group& group, Mode mode, std::optional<int> cpu) : group_(group) {
  if (mode == Mode::overlapped)
    thread_ = std::thread([this, cpu] {
      if (cpu) pin_this_thread(*cpu);
      serve();
    });
}

AsyncGroup::~AsyncGroup() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  started_.notify_one();
  thread_.join();
}

AsyncGroup::Work AsyncGroup::start(Collective collective) {
  if (!overlapped()) {
    if (error_) std::rethrow_exception(error_);  // as the thread does: nothing after an error
    const int64_t before = times_.communication;
    try {
      perform(collective);
    } catch (...) {
      error_ = std::current_exception();
      throw;
    }
    times_.exposed += times_.communication - before;
    return {};
  }
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(collective));
    number = ++last_started_;
  }
  started_.notify_one();
  return {number};
}

void AsyncGroup::wait(Work work) {
  if (work.number == 0) return;
  std::unique_lock lock(mutex_);
  FATHOM_EXPECT(work.number <= last_started_, "a wait for work that was not started");
  if (last_over_ < work.number) {
    const int64_t began = nanoseconds(CLOCK_MONOTONIC);
    over_.wait(lock, [&] { return last_over_ >= work.number; });
    times_.exposed += nanoseconds(CLOCK_MONOTONIC) - began;
  }
  if (error_) std::rethrow_exception(error_);
}

double AsyncGroup::Times::hidden_share() const {
  if (communication <= 0) return 0;
  return std::max(0.0, 1 - static_cast<double>(exposed) / static_cast<double>(communication));
}

AsyncGroup::Times AsyncGroup::take_times() {
  const std::lock_guard lock(mutex_);
  FATHOM_EXPECT(last_over_ == last_started_, "times are taken when all work is over");
  return std::exchange(times_, {});
}

void AsyncGroup::perform(const Collective& collective) {
  const int64_t began = nanoseconds(CLOCK_MONOTONIC), cpu = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
  collective(group_);
  const int64_t took = nanoseconds(CLOCK_MONOTONIC) - began,
                used = nanoseconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
  const std::lock_guard lock(mutex_);
  times_.communication += took;
  times_.cpu += used;
}

void AsyncGroup::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    started_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Collective collective = std::move(queue_.front());
    queue_.pop_front();
    std::exception_ptr error = error_;
    lock.unlock();
    if (!error) try {
        perform(collective);
      } catch (...) {
        error = std::current_exception();
      }
    lock.lock();
    error_ = error;
    ++last_over_;
    over_.notify_all();
  }
}

}  // namespace fathom::comm
