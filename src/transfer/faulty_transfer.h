// For tests: puts faults between a writer and its transfer, decided by a seed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transfer/transfer.h"

namespace fathom::transfer {

// Probabilities, for each put().
struct Faults {
  double drop      = 0;  // it never arrives
  double duplicate = 0;  // it arrives a second time, at once or late
  double delay     = 0;  // it arrives after later ones: delayed ones arrive in random order
  double partial   = 0;  // half of the bytes arrive, with the immediate of the whole
  double cut       = 0;  // this and all later ones fail, as when the connection breaks
};

class FaultyTransfer final : public Transfer {
 public:
  FaultyTransfer(std::unique_ptr<Transfer> inner, const Faults& faults, uint64_t seed);

  Status put(const Grant& grant, const Immediate& immediate, std::span<const std::byte> bytes) override;
  Status renew(const Grant& grant) override;
  // Lets everything delayed arrive; what the destructor finds is lost.
  void flush();

 private:
  struct Held {
    Grant grant;
    Immediate immediate;
    std::vector<std::byte> bytes;
  };
  bool happens(double probability);
  uint32_t random();

  std::unique_ptr<Transfer> inner_;
  const Faults faults_;
  const uint64_t seed_;
  uint64_t drawn_ = 0;
  bool cut_       = false;
  std::vector<Held> held_;
};

}  // namespace fathom::transfer
