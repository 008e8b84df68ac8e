#include "lab/read_only_inputs.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <vector>

#include "core/expect.h"

namespace fathom::lab {
namespace {

struct Mapping {
  std::byte* begin;
  size_t bytes;
  bool holds(const void* address) const { return address >= begin && address < begin + bytes; }
};

// Changed by the threads that build problems, one for each rank; never while inputs are read-only.
std::vector<Mapping>& mappings() {
  static std::vector<Mapping> all;
  return all;
}
std::mutex mappings_mutex;

// For the signal handler, which may not take locks.
const Mapping* protected_begin = nullptr;
const Mapping* protected_end   = nullptr;
std::atomic<bool> was_written{false};
struct sigaction before;

void on_fault(int, siginfo_t* info, void*) {
  for (const Mapping* mapping = protected_begin; mapping != protected_end; ++mapping)
    if (mapping->holds(info->si_addr)) {
      was_written = true;
      (void)mprotect(mapping->begin, mapping->bytes, PROT_READ | PROT_WRITE);
      return;  // the write is made again
    }
  sigaction(SIGSEGV, &before, nullptr);  // a fault of the call: the access is made again, and fails
}

}  // namespace

void add_input_mapping(void* begin, int64_t bytes) {
  const std::lock_guard lock(mappings_mutex);
  mappings().push_back({static_cast<std::byte*>(begin), static_cast<size_t>(bytes)});
}

void remove_input_mapping(void* begin) {
  const std::lock_guard lock(mappings_mutex);
  std::erase_if(mappings(), [&](const Mapping& mapping) { return mapping.begin == begin; });
}

ReadOnlyInputs::ReadOnlyInputs() {
  FATHOM_EXPECT(protected_begin == nullptr, "inputs are read-only already");
  protected_begin = mappings().data();
  protected_end   = mappings().data() + mappings().size();
  was_written     = false;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags     = SA_SIGINFO;
  FATHOM_SYSTEM(sigaction(SIGSEGV, &action, &before));
  for (const Mapping& mapping : mappings()) (void)mprotect(mapping.begin, mapping.bytes, PROT_READ);
}

ReadOnlyInputs::~ReadOnlyInputs() {
  for (const Mapping& mapping : mappings())
    (void)mprotect(mapping.begin, mapping.bytes, PROT_READ | PROT_WRITE);
  sigaction(SIGSEGV, &before, nullptr);
  protected_begin = protected_end = nullptr;
}

bool ReadOnlyInputs::written() const { return was_written; }

}  // namespace fathom::lab
