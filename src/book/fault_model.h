// A worker that writes into another process's pages under a lease, a router that asks it how it is, and one
// fault: who believes what and when, and which writes come too late. The model of the book's fault timeline;
// freestanding, for it is compiled to WebAssembly too.
//
// Times are milliseconds. The worker renews its lease, and the router asks for its status, at the multiples
// of `heartbeat`; messages take no time but for a fault. A write is decided upon, and arrives `write` later;
// the next is decided upon at once. Pages whose lease has ended are granted to another writer.
#pragma once

#include <stdint.h>

namespace fathom::book {

inline constexpr int32_t kMostWrites = 1024;

enum class FaultKind : int32_t {
  killed,   // its connections break, which is noticed at once
  stopped,  // it stands still, also in the middle of a write, and goes on where it was
  cut_off,  // it goes on, and no message passes in either direction; those that were sent arrive in the end
};

struct Fault {
  FaultKind kind = FaultKind::stopped;
  int32_t begin  = 0;
  int32_t lasts  = 0;  // of what is killed, it does not matter
};

// What keeps a late write from the pages of another.
enum class WriteGuard : int32_t {
  none,
  clock,  // the worker decides upon a write only while its lease runs
  tag,    // the memory compares the write's tag with the one that is granted
};

struct Watch {
  int32_t heartbeat = 200;
  int32_t timeout   = 1000;  // without an answer to a question, the worker counts as dead
  int32_t lease     = 2000;  // since its last renewal
  int32_t write     = 100;
  WriteGuard guard  = WriteGuard::none;
};

enum class Fate : int32_t {
  in_time,
  refused,  // by the memory
  wrong,    // taken, although the pages were another's
};

struct PageWrite {
  int32_t decided = 0, arrives = 0;
  Fate fate = Fate::in_time;
};

class FaultTimeline {
 public:
  // Heartbeat and write above 0, the others not below; the whole with at most kMostWrites writes.
  void run(const Fault& fault, const Watch& watch);

  static constexpr int32_t kNever = -1;
  int32_t healed() const { return healed_; }
  int32_t noticed() const { return noticed_; }              // by the router
  int32_t granted_again() const { return granted_again_; }  // the pages
  int32_t told() const { return told_; }                    // the worker hears that its lease has ended
  int32_t end() const { return end_; }                      // of what is shown

  int32_t writes() const { return writes_; }
  const PageWrite& write(int32_t i) const { return write_[i]; }
  int32_t count(Fate fate) const;

 private:
  void make_writes(const Fault& fault, const Watch& watch);

  int32_t healed_ = kNever, noticed_ = kNever, granted_again_ = kNever, told_ = kNever, end_ = 0, writes_ = 0;
  PageWrite write_[kMostWrites];
};

}  // namespace fathom::book
