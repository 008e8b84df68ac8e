// The tokens of a C++ or CUDA source: what the compiler sees, whatever the comments and the format are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fathom::lab {

struct SourceTokens {
  // One token a line; literals as they are written. Comments, white space and #pragma once are left out, and
  // strings side by side are one. The end of a preprocessor line is a token, since it ends a macro.
  std::string text;
  std::vector<std::string> quoted_includes;  // "kernels/norm/rmsnorm.h", in order
};

SourceTokens tokens_of(std::string_view source);

}  // namespace fathom::lab
