// What a client reads when the server itself, below the API, says no.
#pragma once

#include <string>
#include <string_view>

namespace fathom::serve {

// {"error": {"message", "type", "param": null, "code": status}}; the type is vLLM's word for the status.
std::string http_error_body(int status, std::string_view message);

}  // namespace fathom::serve
