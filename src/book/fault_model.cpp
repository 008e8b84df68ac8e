#include "book/fault_model.h"

namespace fathom::book {
namespace {

// The first beat that is not before `time`.
int32_t next_beat(int32_t time, int32_t heartbeat) { return (time + heartbeat - 1) / heartbeat * heartbeat; }

}  // namespace

void FaultTimeline::run(const Fault& fault, const Watch& watch) {
  healed_ = noticed_ = granted_again_ = told_ = kNever;
  if (fault.kind == FaultKind::killed) {
    noticed_ = granted_again_ = fault.begin;
  } else {
    healed_ = fault.begin + fault.lasts;

    // The first question in the fault is answered when it is over.
    const int32_t asked = next_beat(fault.begin, watch.heartbeat);
    if (asked < healed_ && healed_ >= asked + watch.timeout) noticed_ = asked + watch.timeout;

    // The last renewal before the fault; at 0 the grant itself. Of a worker that was cut off, the renewals on
    // their way arrive when it is over; one that stood still renews at its next beat.
    const int32_t last    = asked >= watch.heartbeat ? asked - watch.heartbeat : 0;
    const bool none_sent  = fault.kind == FaultKind::stopped || asked >= healed_;
    const int32_t renewed = none_sent ? next_beat(healed_, watch.heartbeat) : healed_;
    if (renewed >= last + watch.lease) {
      granted_again_ = last + watch.lease;
      told_          = renewed;
    }
  }
  end_                  = fault.begin;
  const int32_t times[] = {healed_, noticed_, granted_again_, told_};
  for (const int32_t time : times)
    if (time > end_) end_ = time;
  end_ += 2 * watch.heartbeat;
  make_writes(fault, watch);
}

void FaultTimeline::make_writes(const Fault& fault, const Watch& watch) {
  writes_ = 0;
  for (int32_t now = 0; now < end_ && writes_ < kMostWrites;) {
    const bool its_lease_ended = granted_again_ != kNever && now >= granted_again_;
    if ((told_ != kNever && now >= told_) || (watch.guard == WriteGuard::clock && its_lease_ended)) return;
    PageWrite write{.decided = now, .arrives = now + watch.write};
    now = write.arrives;
    switch (fault.kind) {
      case FaultKind::killed:
        if (write.arrives > fault.begin) return;
        break;
      case FaultKind::stopped:
        if (write.decided <= fault.begin && fault.begin < write.arrives)
          now = write.arrives = write.arrives + fault.lasts;
        break;
      case FaultKind::cut_off:
        if (write.arrives >= fault.begin && write.arrives < healed_) write.arrives = healed_;
        break;
    }
    if (granted_again_ != kNever && write.arrives >= granted_again_)
      write.fate = watch.guard == WriteGuard::tag ? Fate::refused : Fate::wrong;
    write_[writes_++] = write;
  }
}

int32_t FaultTimeline::count(Fate fate) const {
  int32_t count = 0;
  for (int32_t i = 0; i < writes_; ++i) count += write_[i].fate == fate;
  return count;
}

}  // namespace fathom::book
