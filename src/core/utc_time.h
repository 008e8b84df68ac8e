// The time of day as records and folders write it.
#pragma once

#include <string>

namespace fathom {

std::string utc_now();  // ISO 8601: "2026-05-02T10:00:00Z"

}  // namespace fathom
