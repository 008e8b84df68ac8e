// What fault_timeline.js calls.
#include "book/fault_model.h"

#define WASM_EXPORT(name) extern "C" __attribute__((export_name(#name)))

using namespace fathom::book;

namespace {

FaultTimeline timeline;

}  // namespace

WASM_EXPORT(run)
void run(int32_t kind, int32_t begin, int32_t lasts, int32_t heartbeat, int32_t timeout, int32_t lease,
         int32_t write, int32_t guard) {
  timeline.run({static_cast<FaultKind>(kind), begin, lasts},
               {heartbeat, timeout, lease, write, static_cast<WriteGuard>(guard)});
}

WASM_EXPORT(healed) int32_t healed() { return timeline.healed(); }
WASM_EXPORT(noticed) int32_t noticed() { return timeline.noticed(); }
WASM_EXPORT(granted_again) int32_t granted_again() { return timeline.granted_again(); }
WASM_EXPORT(told) int32_t told() { return timeline.told(); }
WASM_EXPORT(end) int32_t end() { return timeline.end(); }
WASM_EXPORT(writes) int32_t writes() { return timeline.writes(); }
WASM_EXPORT(arrives) int32_t arrives(int32_t i) { return timeline.write(i).arrives; }
WASM_EXPORT(fate) int32_t fate(int32_t i) { return static_cast<int32_t>(timeline.write(i).fate); }
