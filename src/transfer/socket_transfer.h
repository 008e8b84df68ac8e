// Transfers between processes, over TCP. Either the bytes go through the connection, or the writer copies
// them into memory that it shares with the owner, and only the immediates go through the connection.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "transfer/landing.h"
#include "transfer/transfer.h"

namespace fathom::transfer {

// Where a landing memory is found.
struct Address {
  std::string host;
  uint16_t port = 0;
  std::string memory;  // SharedMemory::path() for a writer on the same host; "": the bytes go by TCP
};

// Receives writes for a landing memory, on a thread of its own, and ends transfers whose time has passed.
class LandingServer {
 public:
  // `landing` must outlive it. The error names the address. Port 0: any that is free.
  static Result<std::unique_ptr<LandingServer>> listen(Landing& landing, const std::string& host,
                                                       uint16_t port = 0);
  ~LandingServer();

  uint16_t port() const;

 private:
  struct State;
  explicit LandingServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Each call, connecting included, takes at most `timeout`. After an error the connection is closed, and every
// further call fails.
Result<std::unique_ptr<Transfer>> connect(const Address& address, std::chrono::nanoseconds timeout);

}  // namespace fathom::transfer
