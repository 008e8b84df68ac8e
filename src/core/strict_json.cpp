#include "core/strict_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

namespace fathom {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxShown = 96;

struct Refused {
  std::string why;
};

}  // namespace

Result<Json> parse_strict_json(std::string_view text) {
  std::vector<std::set<std::string>> keys;  // of each open object; empty for arrays
  const auto on_event = [&](int, Json::parse_event_t event, Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        if (keys.size() == kMaxDepth) throw Refused{fmt::format("it is nested deeper than {}", kMaxDepth)};
        keys.emplace_back();
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        keys.pop_back();
        break;
      case Json::parse_event_t::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!keys.back().insert(key).second) throw Refused{fmt::format("it has {} twice", in_quotes(key))};
        break;
      }
      case Json::parse_event_t::value:
        break;
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), on_event);
  } catch (const Json::parse_error& e) {
    return Error{fmt::format("no valid JSON at byte {}", e.byte)};
  } catch (const Json::exception&) {  // a number out of range
    return Error{"no valid JSON: a number in it is out of range"};
  } catch (const Refused& refused) {
    return Error{refused.why};
  }
}

std::string in_quotes(std::string_view name) {
  size_t shown = std::min(name.size(), kMaxShown);
  while (shown > 0 && shown < name.size() && (name[shown] & 0xc0) == 0x80) --shown;  // whole characters only
  std::string text = "'";
  for (const char c : name.substr(0, shown)) text += static_cast<unsigned char>(c) < 32 || c == 127 ? '?' : c;
  return text + (shown < name.size() ? "...'" : "'");
}

}  // namespace fathom
