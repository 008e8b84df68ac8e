// A request's target: any bytes give either a path that is safe to print and compare, or an error.
#include "http/request_target.h"

#include <fmt/format.h>

#include <string>

#include "core/expect.h"
#include "core/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fathom;
  const auto target = http::parse_request_target({reinterpret_cast<const char*>(data), size});
  if (!target) {
    FATHOM_EXPECT(is_well_formed(target.error().message), "an error must be text");
    return 0;
  }
  FATHOM_EXPECT(target->path == "*" || target->path.starts_with('/'), "a path must be absolute");
  FATHOM_EXPECT(target->path.find('\0') == std::string::npos, "a path has NUL");
  FATHOM_EXPECT(is_well_formed(target->path), "a path is no UTF-8");

  std::string encoded;
  for (const char c : target->path) encoded += fmt::format("%{:02x}", static_cast<unsigned char>(c));
  const auto again = http::parse_request_target(encoded + "?" + target->query);
  FATHOM_EXPECT(again && again->path == target->path && again->query == target->query,
                "a path, encoded, must be itself again");
  return 0;
}
