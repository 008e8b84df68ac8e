#include "transfer/transfer.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "core/expect.h"
#include "transfer/landing.h"

namespace fathom::transfer {
namespace {

class MemcpyTransfer final : public Transfer {
 public:
  explicit MemcpyTransfer(Landing& landing) : landing_(landing) {}

  Status put(const Grant&, const Immediate& immediate, std::span<const std::byte> bytes) override {
    if (landing_.arrive(immediate, bytes, Clock::now()) == Landing::Answer::refused)
      return Error{fmt::format("transfer {} has ended: its slice {} is refused", immediate.tag.transfer,
                               immediate.slice)};
    return Ok();
  }
  Status renew(const Grant& grant) override {
    if (!landing_.renew(grant.tag, Clock::now()))
      return Error{fmt::format("transfer {} has ended", grant.tag.transfer)};
    return Ok();
  }

 private:
  Landing& landing_;
};

}  // namespace

uint64_t checksum_of(const Tag& tag, uint32_t slice, std::span<const std::byte> bytes) {
  const uint64_t place[] = {tag.transfer, tag.epoch, slice};
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), XXH3_64bits(place, sizeof place));
}

Status write(Transfer& transfer, const Grant& grant, std::span<const Slice> slices) {
  for (const auto& [index, bytes] : slices) {
    FATHOM_EXPECT(index < grant.slices.size() && bytes.size() == grant.slices[index].bytes,
                  "a slice has the number and the size that were granted");
    const Status put = transfer.put(
        grant, {.tag = grant.tag, .slice = index, .checksum = checksum_of(grant.tag, index, bytes)}, bytes);
    if (!put) return put;
  }
  return Ok();
}

Status mark_failed(Transfer& transfer, const Grant& grant, uint32_t slice) {
  return transfer.put(grant, {.tag = grant.tag, .slice = slice, .failed = true}, {});
}

std::unique_ptr<Transfer> memcpy_transfer(Landing& landing) {
  return std::make_unique<MemcpyTransfer>(landing);
}

}  // namespace fathom::transfer
