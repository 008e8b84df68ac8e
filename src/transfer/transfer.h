// One-sided writes of pages into a peer's registered memory (landing.h), in the words of RDMA: a write
// carries an immediate, and the owner of the memory counts immediates instead of relying on an order.
//
//   owner                                     writer
//   Landing::grant(sizes) -> Grant   ---->    write(transfer, grant, slices)
//   done(Outcome)                    <----    bytes and immediates, in any order, possibly twice
//
// Nothing is acknowledged to the writer. The owner alone knows when a transfer is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"

namespace fathom::transfer {

class Landing;

// A piece of the registered memory, in bytes from its beginning.
struct Range {
  uint64_t offset = 0, bytes = 0;
};

// Names a transfer. The epoch is that of the landing memory: a restarted process has another one, so writes
// meant for its predecessor are refused.
struct Tag {
  uint64_t transfer = 0, epoch = 0;
  bool operator==(const Tag&) const = default;
};

// The right to write each slice once, to its own range (a scatter list). It ends with its lease.
struct Grant {
  Tag tag;
  std::vector<Range> slices;
};

// What arrives with a write. A failed slice arrives too, as a mark, so that the owner does not wait for it.
struct Immediate {
  Tag tag;
  uint32_t slice    = 0;
  bool failed       = false;
  uint64_t checksum = 0;  // checksum_of() the whole slice
};

// Covers the tag and the slice's number, so that right bytes in a wrong place do not pass.
uint64_t checksum_of(const Tag& tag, uint32_t slice, std::span<const std::byte> bytes);

// A writer's way to one landing memory. Used by one thread at a time. Destroyed: no write follows.
class Transfer {
 public:
  virtual ~Transfer() = default;

  // Writes `bytes` to the slice that the immediate names, then delivers the immediate. Takes bounded time. An
  // error means that it may or may not have arrived; a repetition does no harm.
  virtual Status put(const Grant& grant, const Immediate& immediate, std::span<const std::byte> bytes) = 0;
  // The writer lives and will write more: the lease is renewed, never shortened.
  virtual Status renew(const Grant& grant) = 0;
};

struct Slice {
  uint32_t index = 0;  // in Grant::slices
  std::span<const std::byte> bytes;
};

// Writes slices with their checksums; stops at the first error.
Status write(Transfer& transfer, const Grant& grant, std::span<const Slice> slices);
// Marks a slice as failed: the transfer ends at once, with Outcome::failed.
Status mark_failed(Transfer& transfer, const Grant& grant, uint32_t slice);

// Within a process: a copy. `landing` must outlive it.
std::unique_ptr<Transfer> memcpy_transfer(Landing& landing);

}  // namespace fathom::transfer
