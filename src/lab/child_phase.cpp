#include "lab/child_phase.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "core/expect.h"

namespace fathom::lab {
namespace {

int64_t now_ns() {  // the same clock in both processes
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

// A sequence lock with one writer: odd while it writes. A child that dies while it writes leaves it odd; then
// the reader takes the page as it is.
struct PhaseBoard::Page {
  std::atomic<uint32_t> sequence;
  std::atomic<int64_t> posted_ns;
  std::atomic<double> fraction;
  char variant[96];
  char phase[96];
};

PhaseBoard PhaseBoard::create() {
  const int fd = FATHOM_SYSTEM(memfd_create("fathom-phase", MFD_CLOEXEC));
  FATHOM_SYSTEM(ftruncate(fd, sizeof(Page)));
  PhaseBoard board = open(fd);
  board.post("", "start", 0);
  return board;
}

PhaseBoard PhaseBoard::open(int fd) {
  void* page = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) system_failed("mmap of the phase board", errno, __FILE__, __LINE__);
  return {fd, static_cast<Page*>(page)};
}

PhaseBoard::PhaseBoard(PhaseBoard&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), page_(std::exchange(other.page_, nullptr)) {}

PhaseBoard::~PhaseBoard() {
  if (page_) munmap(page_, sizeof(Page));
  if (fd_ >= 0) close(fd_);
}

void PhaseBoard::post(std::string_view variant, std::string_view phase, double fraction) {
  const auto copy = [](char(&to)[96], std::string_view from) {
    const size_t n = std::min(from.size(), sizeof to - 1);
    std::memcpy(to, from.data(), n);
    to[n] = 0;
  };
  page_->sequence.fetch_add(1, std::memory_order_acq_rel);
  copy(page_->variant, variant);
  copy(page_->phase, phase);
  page_->fraction.store(fraction, std::memory_order_relaxed);
  page_->posted_ns.store(now_ns(), std::memory_order_relaxed);
  page_->sequence.fetch_add(1, std::memory_order_release);
}

PhaseBoard::Phase PhaseBoard::read() const {
  Phase phase;
  for (int attempt = 0; attempt < 100; ++attempt) {
    const uint32_t before = page_->sequence.load(std::memory_order_acquire);
    phase.variant.assign(page_->variant, strnlen(page_->variant, sizeof page_->variant));
    phase.phase.assign(page_->phase, strnlen(page_->phase, sizeof page_->phase));
    phase.fraction = page_->fraction.load(std::memory_order_relaxed);
    phase.seconds  = static_cast<double>(now_ns() - page_->posted_ns.load(std::memory_order_relaxed)) * 1e-9;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && page_->sequence.load(std::memory_order_relaxed) == before) break;
  }
  return phase;
}

}  // namespace fathom::lab
