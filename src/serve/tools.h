// tools and tool_choice: the functions that the model may call, and whether it must.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/harmony_tools.h"
#include "serve/json_fields.h"
#include "serve/request_fields.h"

namespace fathom::serve {

inline constexpr int64_t kMaxTools = 128;

struct ToolChoice {
  enum class Kind { none, automatic, required, named };
  Kind kind = Kind::none;
  std::string name;  // of Kind::named: one of the tools
};

// No two tools have the same name.
std::vector<model::NamedSchema> read_tools(const Field& tools, Shape shape);
ToolChoice read_tool_choice(const Field& choice, const std::vector<model::NamedSchema>& tools, Shape shape);

}  // namespace fathom::serve
