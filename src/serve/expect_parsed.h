// For tests of request parsing: expects that a body is accepted, or refused at a field.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "serve/generation_options.h"

namespace fathom::serve {

inline const ServedModel kServed{
    .vocab_size = 1000, .max_context = 4096, .defaults = {.temperature = 0.7, .top_p = 0.9, .top_k = 40}};

template <class T>
T accepted(ApiResult<T> result, const std::string& body) {
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << error->param << ": " << error->message << "\n" << body;
    return {};
  }
  return std::get<T>(std::move(result));
}

// `param` and the message both name the field.
template <class T>
void expect_refused(const ApiResult<T>& result, const std::string& param, const std::string& body) {
  const auto* error = std::get_if<ApiError>(&result);
  ASSERT_TRUE(error) << "accepted, but " << param << " is wrong: " << body;
  EXPECT_EQ(error->param, param) << error->message << "\n" << body;
  EXPECT_EQ(error->status, 400);
  EXPECT_EQ(error->type, "BadRequestError");
  EXPECT_NE(error->message.find(param.empty() ? "the body" : param), std::string::npos) << error->message;
  EXPECT_LT(error->message.size(), 600u) << "a message does not repeat all that was sent";
}

}  // namespace fathom::serve
