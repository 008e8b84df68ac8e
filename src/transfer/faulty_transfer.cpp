#include "transfer/faulty_transfer.h"

#include <utility>

#include "core/rng.h"

namespace fathom::transfer {

FaultyTransfer::FaultyTransfer(std::unique_ptr<Transfer> inner, const Faults& faults, uint64_t seed)
    : inner_(std::move(inner)), faults_(faults), seed_(seed) {}

uint32_t FaultyTransfer::random() {
  const uint64_t at = drawn_++;
  return philox({static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), 0, 0},
                {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)})[0];
}

bool FaultyTransfer::happens(double probability) { return random() < probability * 0x1p32; }

Status FaultyTransfer::put(const Grant& grant, const Immediate& immediate, std::span<const std::byte> bytes) {
  cut_ = cut_ || happens(faults_.cut);
  if (cut_) return Error{"the connection was cut"};
  if (happens(faults_.drop)) return Ok();
  const auto keep = [&] {
    held_.push_back({.grant = grant, .immediate = immediate, .bytes = {bytes.begin(), bytes.end()}});
  };
  if (happens(faults_.delay)) {
    keep();
    return Ok();
  }
  if (happens(faults_.partial)) return inner_->put(grant, immediate, bytes.first(bytes.size() / 2));
  const bool twice = happens(faults_.duplicate);
  if (twice) keep();
  const Status put = inner_->put(grant, immediate, bytes);
  if (put && twice && random() % 2 == 0) return inner_->put(grant, immediate, bytes);
  return put;
}

Status FaultyTransfer::renew(const Grant& grant) {
  if (cut_) return Error{"the connection was cut"};
  return happens(faults_.drop) ? Ok() : inner_->renew(grant);
}

void FaultyTransfer::flush() {
  while (!held_.empty() && !cut_) {
    std::swap(held_[random() % held_.size()], held_.back());
    const Held held = std::move(held_.back());
    held_.pop_back();
    (void)inner_->put(held.grant, held.immediate, held.bytes);
  }
}

}  // namespace fathom::transfer
