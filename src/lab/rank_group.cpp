#include "lab/rank_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "core/expect.h"

namespace fathom::lab {
namespace {

template <size_t N>
void copy_text(char (&to)[N], const std::string& from) {
  const size_t n = std::min(from.size(), N - 1);
  std::memcpy(to, from.data(), n);
  to[n] = 0;
}

// A rank's life, without an exception that leaves it. True: it did all it had to do.
bool live(RankGroup& group, int rank, const std::function<void(int)>& rank_main) {
  try {
    rank_main(rank);
    return true;
  } catch (const GroupBroken&) {
  } catch (const std::exception& e) {
    group.slot(rank).fail(Caught{Outcome::crashed, "exception", e.what()});
  }
  group.abandon();
  return false;
}

}  // namespace

void RankSlot::fail(const Caught& caught) {
  outcome_ = caught.outcome;
  copy_text(what_, caught.defence);
  copy_text(detail_, caught.detail);
  failed_ = Failed::caught;
}

void RankSlot::fail(const Skip& skip) {
  copy_text(what_, skip.reason);
  copy_text(detail_, skip.need);
  failed_ = Failed::skip;
}

std::optional<Caught> RankSlot::caught() const {
  if (failed_ != Failed::caught) return std::nullopt;
  return Caught{outcome_, what_, detail_};
}

std::optional<Skip> RankSlot::skip() const {
  if (failed_ != Failed::skip) return std::nullopt;
  return Skip{what_, detail_};
}

// The first pages of the group's memory. Ranks are forked or threads, so addresses agree.
struct RankGroup::Board {
  std::atomic<int> arrived{0};
  std::atomic<int> generation{0};
  std::atomic<int> abandoned{0};
  std::atomic<int> variant{-1};
  RankSlot slots[kMaxRanks];
};

RankGroup::RankGroup(int size, RanksAs ranks_as, int64_t shared_bytes)
    : size_(size), ranks_as_(ranks_as), bytes_(sizeof(Board) + 64 + static_cast<size_t>(shared_bytes)) {
  FATHOM_EXPECT(size >= 1 && size <= kMaxRanks, "an experiment has 1 to 64 ranks");
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) system_failed("mmap of a group's memory", errno, __FILE__, __LINE__);
  board_ = new (memory) Board;
}

RankGroup::~RankGroup() { munmap(board_, bytes_); }

std::span<std::byte> RankGroup::shared() const {
  constexpr size_t kOffset = (sizeof(Board) + 63) / 64 * 64;
  return {reinterpret_cast<std::byte*>(board_) + kOffset, bytes_ - sizeof(Board) - 64};
}

RankSlot& RankGroup::slot(int rank) { return board_->slots[rank]; }
std::atomic<int>& RankGroup::variant() { return board_->variant; }
void RankGroup::abandon() { board_->abandoned.store(1); }

// Spins, then gives the processor away, since ranks may outnumber CPUs. It sleeps only when others take long:
// to wake up takes some 60 us, by which this rank would begin its next step too late.
void RankGroup::barrier() {
  const int generation = board_->generation.load(std::memory_order_acquire);
  if (board_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    board_->arrived.store(0, std::memory_order_relaxed);
    board_->generation.fetch_add(1, std::memory_order_release);
    return;
  }
  for (int64_t spins = 0; board_->generation.load(std::memory_order_acquire) == generation; ++spins) {
    if (board_->abandoned.load(std::memory_order_relaxed)) throw GroupBroken("another rank is gone");
    if (spins > 40'000)
      usleep(50);
    else if (spins > 2000)
      sched_yield();
  }
}

void RankGroup::say(const std::string& line) {
  if (line_fd_ < 0) return on_line_(line);
  const std::string ended = line + "\n";
  for (size_t sent = 0; sent < ended.size();) {
    const ssize_t n = write(line_fd_, ended.data() + sent, ended.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw GroupBroken("nobody reads what rank 0 says");
    sent += static_cast<size_t>(n);
  }
}

bool RankGroup::run(const std::function<void(int rank)>& rank_main,
                    const std::function<void(const std::string&)>& on_line) {
  on_line_ = on_line;
  return ranks_as_ == RanksAs::devices ? run_threads(rank_main) : run_processes(rank_main);
}

bool RankGroup::run_threads(const std::function<void(int rank)>& rank_main) {
  std::vector<std::thread> others;
  std::atomic<bool> all_well{true};
  for (int rank = 1; rank < size_; ++rank)
    others.emplace_back([&, rank] {
      if (!live(*this, rank, rank_main)) all_well = false;
    });
  if (!live(*this, 0, rank_main)) all_well = false;
  for (std::thread& other : others) other.join();
  return all_well;
}

// All ranks are forked, rank 0 too: this process must not touch CUDA before it forks, nor after.
bool RankGroup::run_processes(const std::function<void(int rank)>& rank_main) {
  constexpr int kPollMs  = 5;
  constexpr int kGraceMs = 2000;  // for ranks to see that another is gone, before they are killed
  int fds[2];
  FATHOM_SYSTEM(pipe2(fds, O_CLOEXEC));
  std::vector<pid_t> alive;
  for (int rank = 0; rank < size_; ++rank) {
    const pid_t pid = FATHOM_SYSTEM(fork());
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      line_fd_ = fds[1];
      _exit(live(*this, rank, rank_main) ? 0 : 1);
    }
    alive.push_back(pid);
  }
  close(fds[1]);

  bool all_well = true;
  std::string pending;
  const auto read_lines = [&] {
    char buffer[65536];
    const ssize_t n = read(fds[0], buffer, sizeof buffer);
    if (n > 0) pending.append(buffer, static_cast<size_t>(n));
    for (size_t end; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1))
      on_line_(pending.substr(0, end));
    return n > 0;
  };
  int ms_since_death = 0;
  while (!alive.empty()) {
    pollfd ready{fds[0], POLLIN, 0};
    if (poll(&ready, 1, kPollMs) <= 0 || !read_lines()) usleep(1000 * kPollMs);
    std::erase_if(alive, [&](pid_t pid) {
      int status = 0;
      if (waitpid(pid, &status, WNOHANG) != pid) return false;
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
      if (all_well)
        death_ = WIFSIGNALED(status) ? fmt::format("a rank died of signal {} ({})", WTERMSIG(status),
                                                   strsignal(WTERMSIG(status)))
                                     : fmt::format("a rank ended with exit code {}", WEXITSTATUS(status));
      all_well = false;
      abandon();
      return true;
    });
    ms_since_death += all_well ? 0 : kPollMs;
    if (ms_since_death > kGraceMs)
      for (const pid_t pid : alive) kill(pid, SIGKILL);
  }
  while (read_lines()) {
  }
  close(fds[0]);
  return all_well;
}

}  // namespace fathom::lab
