#include "serve/tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/strict_json.h"

namespace fathom::serve {

std::vector<model::NamedSchema> read_tools(const Field& tools, Shape shape) {
  std::vector<model::NamedSchema> found;
  std::set<std::string> names;
  size_t bytes        = 0;
  const int64_t count = tools.size(kMaxTools);
  for (int64_t i = 0; i < count; ++i) {
    const Field tool = tools.at(i);
    if (!tool["type"]) tool["type"].fail("is missing");
    tool["type"].one_of({"function"});
    const Field function = shape == Shape::flat ? tool : tool["function"];
    found.push_back(read_named_schema(function, "parameters"));
    bytes += found.back().schema.size();
    if (!names.insert(found.back().name).second)
      function["name"].fail("is the name of an earlier tool too: give each its own");
  }
  if (bytes > kMaxSchemaBytes)
    tools.fail(
        fmt::format("have {} bytes of parameters, but at most {} are allowed", bytes, kMaxSchemaBytes));
  return found;
}

ToolChoice read_tool_choice(const Field& choice, const std::vector<model::NamedSchema>& tools, Shape shape) {
  using Kind = ToolChoice::Kind;
  const ToolChoice automatic{.kind = tools.empty() ? Kind::none : Kind::automatic};
  if (!choice) return automatic;
  if (choice.is_object()) {
    choice["type"].one_of({"function"});
    const Field named = (shape == Shape::flat ? choice : choice["function"])["name"];
    const ToolChoice one{.kind = Kind::named, .name = read_name(named)};
    if (std::none_of(tools.begin(), tools.end(), [&](const auto& tool) { return tool.name == one.name; }))
      named.fail(fmt::format("is {}, but no tool has that name", in_quotes(one.name)));
    return one;
  }
  const std::string word = choice.one_of({"none", "auto", "required"}).value_or("none");
  if (word == "none") return {};
  if (word == "auto") return automatic;
  if (tools.empty()) choice.fail("is 'required', but there are no tools to choose from");
  return {.kind = Kind::required};
}

}  // namespace fathom::serve
