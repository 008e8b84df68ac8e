// JSON that a person can read and diff: a value that fits is on one line, a list of numbers always is.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fathom::lab {

// For committed records: without absent members, one line a variant where it fits.
std::string record_text(const nlohmann::json& json);

// Without members that are null, "", [] or {}: readers take what is missing as absent.
nlohmann::json without_absent(const nlohmann::json& json);

std::string json_text(const nlohmann::json& json, size_t line = 110);  // ends with a newline

}  // namespace fathom::lab
