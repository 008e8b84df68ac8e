// An io_uring for reads, made of two system calls and two mapped rings, without liburing. Interface:
// io_uring(7), io_uring_enter(2), linux/io_uring.h.
#pragma once

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "core/expect.h"

namespace fathom::lab::io_uring {

class ReadRing {
 public:
  // At most `depth` reads at a time; a power of two.
  explicit ReadRing(unsigned depth) {
    io_uring_params parameters{};
    fd_ = static_cast<int>(FATHOM_SYSTEM(syscall(SYS_io_uring_setup, depth, &parameters)));
    if (!(parameters.features & IORING_FEAT_SINGLE_MMAP)) {
      close(fd_);
      FATHOM_EXPECT(false, "this kernel maps the two rings apart: Linux 5.4 or later is needed");
    }
    ring_bytes_     = std::max<size_t>(parameters.sq_off.array + parameters.sq_entries * sizeof(uint32_t),
                                   parameters.cq_off.cqes + parameters.cq_entries * sizeof(io_uring_cqe));
    sqes_bytes_     = parameters.sq_entries * sizeof(io_uring_sqe);
    ring_           = static_cast<char*>(map(ring_bytes_, IORING_OFF_SQ_RING));
    sqes_           = static_cast<io_uring_sqe*>(map(sqes_bytes_, IORING_OFF_SQES));
    const auto word = [&](uint32_t offset) { return reinterpret_cast<uint32_t*>(ring_ + offset); };
    sq_tail_        = word(parameters.sq_off.tail);
    sq_mask_        = *word(parameters.sq_off.ring_mask);
    sq_array_       = word(parameters.sq_off.array);
    cq_head_        = word(parameters.cq_off.head);
    cq_tail_        = word(parameters.cq_off.tail);
    cq_mask_        = *word(parameters.cq_off.ring_mask);
    cqes_           = reinterpret_cast<io_uring_cqe*>(ring_ + parameters.cq_off.cqes);
  }
  ~ReadRing() {
    munmap(ring_, ring_bytes_);
    munmap(sqes_, sqes_bytes_);
    close(fd_);
  }
  ReadRing(const ReadRing&)            = delete;
  ReadRing& operator=(const ReadRing&) = delete;

  // Queues one read; the kernel sees it at the next wait().
  void queue(int file, void* to, uint32_t bytes, uint64_t offset, uint64_t tag) {
    const uint32_t tail = *sq_tail_;  // only we write it
    const uint32_t slot = tail & sq_mask_;
    io_uring_sqe& sqe   = sqes_[slot];
    std::memset(&sqe, 0, sizeof sqe);
    sqe.opcode      = IORING_OP_READ;
    sqe.fd          = file;
    sqe.addr        = reinterpret_cast<uintptr_t>(to);
    sqe.len         = bytes;
    sqe.off         = offset;
    sqe.user_data   = tag;
    sq_array_[slot] = slot;
    // Release: the kernel must see the entry before the tail that covers it.
    std::atomic_ref(*sq_tail_).store(tail + 1, std::memory_order_release);
    ++queued_;
  }

  // Hands over what was queued, waits for at least one completion, and calls done(tag, result) for all there
  // are; result: bytes read, or -errno.
  template <class F>
  void wait(F&& done) {
    const long submitted = syscall(SYS_io_uring_enter, fd_, queued_, 1, IORING_ENTER_GETEVENTS, nullptr, 0);
    if (submitted == -1 && errno != EINTR) system_failed("io_uring_enter(reads)", errno, __FILE__, __LINE__);
    if (submitted > 0) queued_ -= static_cast<unsigned>(submitted);
    // Acquire: completions up to the tail are written.
    const uint32_t tail = std::atomic_ref(*cq_tail_).load(std::memory_order_acquire);
    for (uint32_t head = *cq_head_; head != tail; ++head) {
      const io_uring_cqe completion = cqes_[head & cq_mask_];
      // Release: the entry has been copied before the kernel may reuse it.
      std::atomic_ref(*cq_head_).store(head + 1, std::memory_order_release);
      done(completion.user_data, completion.res);
    }
  }

 private:
  void* map(size_t bytes, off_t offset) const {
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, offset);
    if (mapped == MAP_FAILED) system_failed("mmap(ring)", errno, __FILE__, __LINE__);
    return mapped;
  }

  int fd_            = -1;
  size_t ring_bytes_ = 0, sqes_bytes_ = 0;
  char* ring_         = nullptr;
  io_uring_sqe* sqes_ = nullptr;
  uint32_t *sq_tail_ = nullptr, *sq_array_ = nullptr, *cq_head_ = nullptr, *cq_tail_ = nullptr;
  uint32_t sq_mask_ = 0, cq_mask_ = 0;
  io_uring_cqe* cqes_ = nullptr;
  unsigned queued_    = 0;  // and not yet taken by the kernel
};

}  // namespace fathom::lab::io_uring
