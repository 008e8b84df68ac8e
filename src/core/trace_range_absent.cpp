#include "core/trace_range.h"

namespace fathom {

TraceRange::TraceRange(const char*) {}
TraceRange::~TraceRange() = default;

}  // namespace fathom
