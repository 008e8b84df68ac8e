// The body of an error that the server itself sends, below the API.
#pragma once

#include <string>
#include <string_view>

namespace fathom::http {

// {"error": {"message", "type", "param": null, "code": status}}; the types are vLLM's.
std::string error_body(int status, std::string_view message);

}  // namespace fathom::http
