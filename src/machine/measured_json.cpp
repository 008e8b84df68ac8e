#include "machine/measured_json.h"

#include <cerrno>
#include <cmath>
#include <cstring>

#include "core/atomic_file.h"
#include "machine/topology.h"

namespace fathom::machine {

using Json = nlohmann::json;

Json measured_to_json(const Measured& m) {
  if (m.trials == 0) return nullptr;
  return {{"median", m.median}, {"lo", m.lo}, {"hi", m.hi}, {"best", m.best}, {"trials", m.trials}};
}

Measured measured_from_json(const Json& json) {
  if (json.is_null()) return {};
  const Measured m{json.at("median"), json.at("lo"), json.at("hi"), json.at("best"), json.at("trials")};
  for (const double value : {m.median, m.lo, m.hi, m.best})
    if (!(value > 0) || !std::isfinite(value))
      throw std::range_error(fmt::format("{} is no measured value", value));
  return m;
}

DType dtype_from_json(const Json& json) {
  const std::string name = json;
  for (size_t i = 0; i < std::size(kDTypes); ++i)
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  throw std::range_error(fmt::format("\"{}\" is no dtype", name));
}

Result<Json> read_json_file(const std::string& path) {
  const std::optional<std::string> text = read_text(path);
  if (!text) return Error{fmt::format("{} cannot be read: {}", path, std::strerror(errno))};
  Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Error{fmt::format("{} is corrupt: not JSON", path)};
  return json;
}

void write_json_file(const Json& json, const std::string& path) {
  write_file_atomically(path, json.dump(1) + "\n");
}

}  // namespace fathom::machine
