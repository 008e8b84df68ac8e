// The key of a server, as clients send it: `Authorization: Bearer KEY`.
#pragma once

#include <string_view>

#include "http/http.h"

namespace fathom::serve {

// Takes the same time however many bytes match, so that timing reveals nothing about the key.
bool has_bearer_token(const http::Request& request, std::string_view key);

}  // namespace fathom::serve
