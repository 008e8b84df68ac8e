// Registered memory in which transfers land, in pages. Its owner grants pages to a writer for one transfer,
// counts what arrives, and reads the pages when all has.
//
// The life of a page: free -> granted -> complete -> free. A transfer that does not complete (a slice failed
// or has a wrong checksum, the lease passed without a slice, the owner revoked it) ends at once. Its tag is
// never valid again, so what arrives later is refused. Writers that copy by themselves (shared memory) could
// still be in the middle of a write: their pages stay in quarantine until that writer has gone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "transfer/shared_memory.h"
#include "transfer/transfer.h"

namespace fathom::transfer {

using Clock     = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using WriterId  = uint64_t;  // a connection of a writer that copies by itself; 0: none

enum class Outcome { complete, failed, expired, revoked };

// All functions may be called from any thread.
class Landing {
 public:
  struct Options {
    int64_t pages = 0, page_bytes = 0;
    // A transfer ends when nothing arrived for so long, and in any case after `limit`.
    std::chrono::milliseconds lease{2'000}, limit{60'000};
  };
  explicit Landing(const Options& options);

  // Called once for each grant, without a lock, from the call that ended the transfer. It must not throw.
  using Done = std::function<void(Outcome)>;
  // A page for each slice of so many bytes, at most page_bytes. None where too few pages are free.
  std::optional<Grant> grant(std::span<const uint64_t> slices, TimePoint now, Done done);

  enum class Answer {
    taken,
    repeated,  // has arrived before: nothing changed
    refused,   // not granted, or ended
  };
  // Copies a slice's bytes to its page. Bytes of another number or checksum end the transfer.
  Answer arrive(const Immediate& immediate, std::span<const std::byte> bytes, TimePoint now);

  // The writer lives. False: the transfer has ended.
  bool renew(const Tag& tag, TimePoint now);

  // For writers that copy by themselves. A grant is claimed before the first byte; false: it has ended, and
  // nothing may be written. Then every slice's bytes are there before arrive_in_place().
  bool claim(const Tag& tag, WriterId writer);
  Answer arrive_in_place(const Immediate& immediate, WriterId writer, TimePoint now);
  // The writer can write no more: its process has ended, or it said so by closing its connection.
  void writer_gone(WriterId writer);

  // Ends transfers whose time has passed. Call it every few milliseconds.
  void expire(TimePoint now);
  // Ends an unfinished transfer with Outcome::revoked; afterwards nothing of it is taken.
  void revoke(const Tag& tag);

  // A slice of a complete transfer, until release().
  std::span<const std::byte> slice(const Grant& grant, uint32_t index) const;
  // The owner has read a complete transfer.
  void release(const Tag& tag);

  uint64_t epoch() const { return epoch_; }
  int64_t page_bytes() const { return options_.page_bytes; }
  int64_t free_pages() const;
  int64_t quarantined_pages() const;
  const SharedMemory& memory() const { return memory_; }

 private:
  struct State {
    Grant grant;
    std::vector<bool> arrived;
    size_t missing = 0;
    TimePoint deadline, latest;
    Done done;
    WriterId writer = 0;
    bool ended = false, released = false;  // ended: `done` was called
  };
  using States = std::unordered_map<uint64_t, State>;

  // Under mutex_. The state of a tag, or end().
  States::iterator find(const Tag& tag);
  Answer count(States::iterator at, const Immediate& immediate, bool right, TimePoint now, Done& ended,
               Outcome& outcome);
  Done end(States::iterator at, Outcome outcome);
  void reclaim(States::iterator at);

  const Options options_;
  const uint64_t epoch_;
  SharedMemory memory_;
  mutable std::mutex mutex_;
  std::vector<uint64_t> free_;  // offsets of pages
  States states_;
  uint64_t next_ = 1;
};

}  // namespace fathom::transfer
